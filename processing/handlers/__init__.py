"""The users' API: how handlers are declared, called and end."""
