"""This instance among others: registration, limits and its share of them."""
