"""Does a run survive? Killed at random moments it has to come out the same; with faults all the time it must not grow."""
