"""Client and server of HTTP, TLS on both sides."""
