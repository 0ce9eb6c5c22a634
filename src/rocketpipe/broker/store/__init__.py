"""What a broker keeps on disk: the commit log, and the indexes derived from it."""
