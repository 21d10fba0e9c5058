"""The settings of an instance: where they are read, what they mean, what they exclude."""
