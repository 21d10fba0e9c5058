"""The wire contract: envelope, headers, fingerprint, states."""
