"""`dpbandit.Client`: the service from ordinary code. Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl as tls
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from dpbandit.client import calls
from dpbandit.client.calls import Call, Contexts, Decision, Ranked, Reports

T = TypeVar("T")


class Client:
    """Ask a dpbandit service for decisions and report their rewards.

    Connections are kept and reused, even by several threads. Unanswered requests are sent again,
    with growing random pauses, for up to `patience` seconds. That is safe, because decisions and
    rewards count once however often they are sent.

    Parameters
    ----------
    url : str
        Address of the service. Without TLS only on this machine, unless `insecure`.
    key : str, optional
        As printed by `dpbandit keys create`; default: the environment variable DPBANDIT_KEY.
    timeout : float
        Seconds to wait for a connection, and for each piece of an answer.
    patience : float
        Seconds over all attempts of one call.
    insecure : bool
        Whether plain http may leave this machine: key and rewards are then in the clear.
    ssl : ssl.SSLContext, optional
        For a certificate authority of your own.

    Raises
    ------
    OptionError, AccessError
        If the address or the key cannot be one. Every call may raise RequestError (what was asked
        is not possible), AccessError, ServiceError and UnreachableError.

    Examples
    --------
    >>> client = Client("https://bandits.example.org", key="dpb_0123456789ab_secret")
    >>> client
    Client('https://bandits.example.org')
    >>> client.close()

    With a service at hand:

        with dpbandit.Client("http://127.0.0.1:8080") as client:
            shown = client.decide("shop", [[1.0, 0.0], [0.0, 1.0]], arms=["tea", "coffee"])
            ...
            client.reward("shop", shown, 1.0)
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        timeout: float = 10.0,
        patience: float = 30.0,
        insecure: bool = False,
        ssl: tls.SSLContext | None = None,
    ) -> None:
        self._address = calls.Address(
            url, key=key, timeout=timeout, patience=patience, insecure=insecure
        )
        self._ssl = ssl
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"Client({self._address.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The client can be used again: it opens new ones."""
        while self._idle:
            self._idle.pop().close()

    # ------------------------------------------------------------------ what can be asked

    def decide(
        self,
        bandit: str,
        contexts: Contexts,
        arms: Sequence[str] | None = None,
        user: str | int | None = None,
        *,
        request: str | None = None,
        k: int | None = None,
        propensities: bool = False,
        baseline: int | None = None,
        baseline_propensity: float | None = None,
    ) -> Decision:
        """Choose one of the arms described by `contexts`.

        Parameters
        ----------
        bandit : str
            Its name.
        contexts : array of shape (arms, dim)
            One row per arm.
        arms : list of str, optional
            Names of the arms; the chosen one is returned as `arm_id`.
        user : str or int, optional
            Whose decision it is; required if the bandit protects users.
        request : str, optional
            Your own id, for a decision that must survive a crash of the caller: the same id gives
            the same decision.
        k : int, optional
            Rank this many arms. They are returned as `slate`, best first, with their scores, each
            with its own id for its reward.
        propensities : bool
            Whether `slate` includes each arm's probability of being ranked first.
        baseline : int, optional
            The arm that another system shows. A bandit in the shadow requires it and answers with
            it; a live bandit ignores it.
        baseline_propensity : float, optional
            The probability with which the other system shows that arm. Give it always or never.

        Returns
        -------
        Decision
        """
        body = calls.question(
            contexts,
            arms,
            user,
            request=request,
            k=k,
            propensities=propensities,
            baseline=baseline,
            baseline_propensity=baseline_propensity,
        )
        return self._send(calls.post(f"{calls.place(bandit)}/decisions", body, Decision.read))

    def decide_many(self, bandit: str, questions: Iterable[Mapping[str, Any]]) -> list[Decision]:
        """Ask for many decisions in one call, each a dictionary of `decide`'s arguments. All of
        them are made, or none, unless a `request` id was used before for something else."""
        return self._send(calls.decisions(bandit, questions))

    def reward(self, bandit: str, decision: str | Decision | Ranked, reward: float) -> str:
        """Report a reward: 'accepted' or 'duplicate' (counted, once), or 'late' (not counted)."""
        report = calls.report(decision, reward)
        path = f"{calls.place(bandit)}/rewards"
        return self._send(calls.post(path, report, lambda said: str(said["status"])))

    def rewards(self, bandit: str, reports: Reports) -> list[str]:
        """Report many rewards. Each gets a status, which may also be 'conflict' (another was
        reported before) or 'unknown'."""
        return [status for call in calls.rewards(bandit, reports) for status in self._send(call)]

    def create_bandit(
        self,
        /,
        name: str,
        algorithm: str,
        *,
        reward_range: tuple[float, float],
        dim: int | None = None,
        encoder: Any = None,
        epsilon: float | None = None,
        delta: float | None = None,
        reward_window: float | None = None,
        default_reward: float | None = None,
        horizon: int | None = None,
        unit: str | tuple[str, float] | None = None,
        shadow: bool = False,
        holdout: float = 0.0,
        measure_share: float | None = None,
        measure_every: int | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Make a bandit; needs an admin key. Repeating the call changes nothing.

        Parameters
        ----------
        name, algorithm, dim, reward_range, epsilon, delta, horizon, unit, **options
            As for `dpb.make`.
        encoder : Encoder or its record, optional
            Turns the features that Personalizer clients send into contexts, and sets `dim`.
        reward_window : float, optional
            Seconds after a decision in which its reward may be reported; default half an hour.
        default_reward : float, optional
            The reward of decisions without a report; default the lower end of the range.
        shadow : bool
            Whether another system decides until `go_live`, while this bandit learns from what it
            shows.
        holdout : float
            The share of decisions made uniformly at random.
        measure_share, measure_every : float, int, optional
            The share of the budget for measuring a shadow's or holdout's earnings (0.1), and the
            number of its rounds between measurements (1,000).

        Returns
        -------
        dict
            The bandit as `bandit` describes it.

        Raises
        ------
        RequestError
            If it cannot be made, or another bandit has that name.
        """
        asked: dict[str, Any] = {
            "name": name,
            "algorithm": algorithm,
            "dim": dim,
            "reward_range": list(reward_range),
            "encoder": encoder.to_record() if hasattr(encoder, "to_record") else encoder,
        }
        asked |= {"epsilon": epsilon, "delta": delta, "horizon": horizon, "unit": unit}
        asked |= {"reward_window": reward_window, "default_reward": default_reward}
        asked |= {"shadow": shadow or None, "holdout": holdout or None}
        asked |= {"measure_share": measure_share, "measure_every": measure_every}
        asked["options"] = options or None
        given = {field: value for field, value in asked.items() if value is not None}
        return self._send(calls.post("/v1/bandits", given, dict))

    def go_live(self, bandit: str) -> dict[str, Any]:
        """Take a bandit out of the shadow: from now on it decides. Needs an admin key."""
        return self._send(calls.post(f"{calls.place(bandit)}/live", {}, dict))

    def erase_user(self, bandit: str, user: str | int) -> dict[str, Any]:
        """Erase a person's decisions and rewards; needs an admin key. Releases cannot be undone:
        `status` says so, and `decisions` is the number erased."""
        path = f"{calls.place(bandit)}/users/{quote(calls.name_of(user), safe='')}"
        return self._send(Call("DELETE", path, None, dict))

    def bandits(self, *, after: str = "") -> list[dict[str, Any]]:
        """The first thousand bandits by name, or those `after` a name: settings without contexts
        known in advance, claim, status, how far they have learned."""
        path = f"/v1/bandits?after={quote(after)}" if after else "/v1/bandits"
        return self._send(Call("GET", path, None, lambda said: list(said["bandits"])))

    def bandit(self, name: str) -> dict[str, Any]:
        """One bandit."""
        return self._send(Call("GET", calls.place(name), None, dict))

    def privacy(self, name: str | None = None) -> dict[str, Any]:
        """A bandit's promise and spent budget, and what a shadow or holdout earned; without a name,
        the total of all bandits."""
        path = "/v1/privacy" if name is None else f"{calls.place(name)}/privacy"
        return self._send(Call("GET", path, None, dict))

    # ------------------------------------------------------------------ how it is sent

    def _send(self, call: Call[T]) -> T:
        attempts = calls.Attempts(self._address)
        while True:
            connection, used = self._connection()
            try:
                status, retry_after, body = self._exchange(connection, call)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                pause = attempts.failed(error, used=used)
                if used:
                    self.close()
            else:
                if status not in calls.TRY_AGAIN:
                    return calls.answer(call, status, body)
                pause = attempts.wait(f"status {status}", retry_after)
            time.sleep(pause)

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """(connection, used before). A forked child leaves its parent's connections alone."""
        if self._process != os.getpid():
            self._process, self._idle = os.getpid(), []
        with contextlib.suppress(IndexError):
            return self._idle.pop(), True
        where = self._address
        if not where.secure:
            return http.client.HTTPConnection(where.host, where.port, timeout=where.timeout), False
        return http.client.HTTPSConnection(
            where.host,
            where.port,
            timeout=where.timeout,
            context=self._ssl or tls.create_default_context(),
        ), False

    def _exchange(
        self, connection: http.client.HTTPConnection, call: Call[Any]
    ) -> tuple[int, str | None, bytes]:
        path = self._address.prefix + call.path
        connection.request(call.method, path, call.body, self._address.headers_of(call))
        said = connection.getresponse()
        body = said.read()
        if said.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        return said.status, said.headers.get("Retry-After"), body
