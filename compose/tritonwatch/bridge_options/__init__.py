"""The options of the bridge: declared, read and checked."""
