"""Exit codes, the same for every command. The agent pool decides by them which of its processes to restart.

0    done
1    `explain`: the config is illegal; `doctor`, `builds verify`: something is broken
2    the command line itself is wrong (unknown option, missing argument)
3    bad input: a shape, dtype, layout, arch, config, budget or setting outside its domain
4    the device, its driver, the compiler, the cache or a recording can't be used
5    the store can't be opened or written, or standard output has no space left
6    nothing correct was found, so nothing can be served; no such campaign or worker, or one that is gone
7    the service refused, or doesn't answer
130  interrupted; the same command resumes
141  nobody reads the output any more, as behind `head`
"""

from __future__ import annotations

from typing import Final

EXIT_DONE: Final = 0
EXIT_ILLEGAL: Final = 1
EXIT_BROKEN: Final = 1
EXIT_INPUT: Final = 3
EXIT_DEVICE: Final = 4
EXIT_STORE: Final = 5
EXIT_NOTHING: Final = 6
EXIT_SERVICE: Final = 7
EXIT_INTERRUPTED: Final = 130
EXIT_UNREAD: Final = 141
