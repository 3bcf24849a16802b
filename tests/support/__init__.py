"""What tests of all areas share: the real tools, found in every version there is."""
