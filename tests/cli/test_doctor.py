"""`dpbandit doctor`: it finds what is there, says what is missing, and its exit status says whether
the library can work."""

import json
import re
import sys
from pathlib import Path

import pytest

from dpbandit.cli import checks, extras


def states(record):
    return {name: one for section in record["sections"].values() for name, one in section.items()}


def test_here_it_can_work(dpbandit_, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    said = dpbandit_("doctor", "--json")
    assert said.status == 0
    record = json.loads(said.out)
    assert record["works"] is True
    found = states(record)
    for name in (
        "Python",
        "dpbandit",
        "numpy",
        "scipy",
        "opendp",
        "real noise",
        "core",
        "processor",
    ):
        assert found[name]["state"] == "fine", found[name]
    assert "OMP_NUM_THREADS=1" in found["threads"]["found"]
    for name, one in found.items():
        assert one["fix"] or one["state"] in ("fine", "unset"), (
            f"{name} is missing and nothing says how to get it"
        )


def test_it_fits_on_one_screen(dpbandit_, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    said = dpbandit_("doctor")
    assert len(said.out.splitlines()) <= 40
    assert "dpbandit can work here" in said.out


def test_a_sampler_that_repeats_itself_is_found(dpbandit_, monkeypatch):
    from dpbandit.privacy.sources import Real

    monkeypatch.setattr(Real, "release", lambda self, noise, pending, **_: pending.values + 0.5)
    said = dpbandit_("doctor")
    assert said.status == 1
    assert "broken: real noise" in said.out
    assert "pip install --force-reinstall opendp" in said.out


def test_noise_off_its_grid_is_found(monkeypatch):
    import numpy as np

    from dpbandit.privacy.sources import Real

    rng = np.random.default_rng()
    drawn = lambda self, noise, pending, **_: rng.normal(size=len(pending.values))  # noqa: E731
    monkeypatch.setattr(Real, "release", drawn)
    (finding,) = checks.privacy()
    assert finding.state == "broken"


def test_a_package_that_is_not_there_is_found(dpbandit_, monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    found = states(json.loads((said := dpbandit_("doctor", "--json")).out))
    assert said.status == 1
    assert found["opendp"]["state"] == "broken"


def test_extras_that_are_missing_come_with_their_command(monkeypatch):
    monkeypatch.setattr(extras, "there", lambda module: module not in ("ray", "cupy", "psycopg"))
    found = {finding.name: finding for finding in (*checks.optional(), *checks.gpu())}
    assert found["lab"].state == "fine"
    for name, extra in (("cluster", "cluster"), ("postgres", "postgres"), ("GPU", "gpu")):
        assert (found[name].state, found[name].fix) == (
            "absent",
            f"pip install 'dpbandit[{extra}]'",
        )


def test_data_is_looked_for_and_never_downloaded(monkeypatch, tmp_path):
    import urllib.request

    monkeypatch.setattr(
        urllib.request, "urlopen", lambda *_, **__: pytest.fail("it tried to download")
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DPBANDIT_DATA", raising=False)
    found = {finding.name: finding for finding in checks.data()}
    assert found["LastFM"].words == "not found"
    assert "grouplens" in found["LastFM"].fix
    place = tmp_path / "dpbandit" / "lastfm" / "hetrec2011-lastfm-2k.zip"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"something else")
    found = {finding.name: finding for finding in checks.data()}
    assert found["LastFM"].words == f"{place} is not the released file"
    monkeypatch.setenv("DPBANDIT_DATA", str(tmp_path / "nowhere"))
    assert next(checks.data()).state == "absent"


def test_without_a_core_it_is_said_and_the_library_works_all_the_same(monkeypatch):
    from dpbandit import engine

    monkeypatch.setattr(engine, "_core", lambda: (None, "no binary for this platform"))
    (finding,) = checks.core()
    assert finding.state == "absent"
    assert "reference in NumPy" in finding.words


def test_a_core_with_other_noise_is_found(monkeypatch):
    from dpbandit import _core

    monkeypatch.setattr(_core, "noise", lambda name, key, index, scale, value: value)
    (finding,) = checks.core()
    assert finding.state == "broken"


def test_a_section_that_fails_is_a_line(monkeypatch):
    def fails():
        raise OSError("the disk is gone")
        yield

    monkeypatch.setitem(checks.SECTIONS, "Data", fails)
    found = checks.everything()
    assert found["Data"][0].words == "OSError: the disk is gone"
    assert not checks.works(found)


def test_the_readme_lists_every_extra_that_is_for_users():
    text = (Path(__file__).parents[2] / "README.md").read_text()
    table = text[text.index("| extra | for |") : text.index("`dpbandit doctor` lists")]
    listed = re.findall(
        r"`([a-z]+)`", "".join(row.split("|")[1] for row in table.splitlines() if row)
    )
    assert sorted(listed) == sorted(extras.EXTRAS)
