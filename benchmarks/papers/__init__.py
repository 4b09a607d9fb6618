"""Tables and figures of the papers, done again: a folder a paper."""
