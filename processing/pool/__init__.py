"""The main process's side of its children: lanes, chunks, workers, supervision."""
