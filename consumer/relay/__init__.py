"""The process of `oncepool relay`."""
