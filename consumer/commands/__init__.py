"""The subcommands of `oncepool`, one noun a file."""
