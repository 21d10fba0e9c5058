"""What crosses between the main process and its children."""
