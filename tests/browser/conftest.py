"""A real browser, if the machine has one."""

import shutil

import pytest


# Not for the whole session: while it is open an event loop runs in this thread, and tests of other files start theirs.
@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine: the browser tests did not run")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()
