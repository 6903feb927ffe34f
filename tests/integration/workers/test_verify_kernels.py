"""The verification kernels compile, and their structures are laid out as the host packs them."""

from __future__ import annotations

import ctypes

from workers.build import Build, compile_source
from workers.cuda import toolbox
from workers.kernels.verify import SOURCE as VERIFY


def test_they_compile_and_every_field_is_where_the_host_puts_it() -> None:
    checks = []
    for kind in (toolbox.Operand, toolbox.Finish, toolbox.GuardZone, toolbox.CheckResult):
        checks.append(f'static_assert(sizeof({kind.__name__}) == {ctypes.sizeof(kind)}, "size of {kind.__name__}");')
        checks += [
            f'static_assert(__builtin_offsetof({kind.__name__}, {name}) == {getattr(kind, name).offset}, "{name}");'
            for name, *_ in kind._fields_
        ]
    built = compile_source("\n".join([VERIFY.render(), *checks, ""]), "sm_90a", None)
    assert isinstance(built, Build), built
    assert built.warnings == ()
