"""What operators read and change in the journal."""
