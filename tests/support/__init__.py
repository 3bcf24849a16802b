"""Share real servers, recorded histories and stand-ins between the tests of all areas."""
