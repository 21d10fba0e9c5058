"""The producer's side: submit, wait, send again."""
