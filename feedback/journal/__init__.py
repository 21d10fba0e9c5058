"""The journal in PostgreSQL: schema, SQL, what the processes read and write in it."""
