"""Addresses with names that nobody knows, or of what nobody measured: each page says a sentence."""

from __future__ import annotations

from typing import Final

from tests.browser.conftest import Opener

#: What an address has that nobody knows, and part of the sentence that says what there is.
MISNAMED: Final = {
    "/rules?kind=legl": "there are legal and worth", "/explain?knobs=nope": "its knobs are swap_ab",
    "/failures?family=gmv": "use one of sm90_wgmma", "/failures?campaign=99": "gemmtune campaign list",
}  # fmt: skip


def test_a_filter_that_nobody_knows_is_no_empty_page(opened: Opener) -> None:
    for path, words in MISNAMED.items():
        page = opened(path, allowed="the server responded with a status of 4")
        page.wait_for_selector(f"main .sentence:has-text('{words}')")


def test_a_ladder_of_a_card_without_bests_does_not_say_that_nothing_is_measured(opened: Opener) -> None:
    opened("/ladder?device=l4").wait_for_selector("main .sentence:has-text('Nothing is measured on NVIDIA L4 yet')")


def test_no_products_at_all_are_not_answered_as_one(opened: Opener) -> None:
    page = opened("/?m=16&n=16&k=16&batch=0")
    page.wait_for_selector("main [role=status]:has-text('“b0” is no dtype, layout, batch or epilogue')")
    # The digits of a dtype are no extent.
    page.fill("#shape", "fp16 16x24x32 b3 relu")
    page.wait_for_selector("main h2:has-text('fp16 nt 16×24×32 ×3 relu')")


def test_a_card_that_a_link_calls_as_users_do_is_the_chosen_one(opened: Opener) -> None:
    page = opened("/?m=64&n=512&k=512&device=l40s")
    page.wait_for_selector(".answer h2:has-text('on NVIDIA L40S')")
    assert page.input_value("select[name=device]") == "NVIDIA L40S"
    assert "device=NVIDIA+L40S" in page.url
