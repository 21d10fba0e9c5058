"""The gateway's pages for people who operate."""
