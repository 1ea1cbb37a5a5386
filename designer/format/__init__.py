"""Where designer and engine meet: the schedule file, its rules and its lowering; standard library only."""
