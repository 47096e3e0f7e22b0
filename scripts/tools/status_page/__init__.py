"""Pictures of the status page, and a browser that tells what it shows: used by the script and by the tests."""
