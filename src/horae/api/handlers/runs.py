"""Operations on runs: list, show, output, cancel, replay."""

from __future__ import annotations

from horae.api import requests
from horae.api.context import OperationGroup
from horae.api.responses import conversion, job_responses
from horae.api.words import ENDED, origin, run_states
from horae.core.access import Privilege
from horae.core.report.report import build_report
from horae.errors import NotFound, shown
from horae.store.protocols.reads import RunsQuery
from horae.store.protocols.store import RunRecord


class RunOperations(OperationGroup):
    """Lists and shows runs and their output, cancels them and replays them."""

    async def list_runs(self, asked: requests.ListRuns) -> job_responses.RunPage:
        return await self._page(asked, asked.job, asked.id)

    async def job_runs(self, asked: requests.JobRuns) -> job_responses.RunPage:
        return await self._page(asked, asked.name)

    async def _page(
        self, asked: requests.ListRuns | requests.JobRuns, job: str | None, beginning: str | None = None
    ) -> job_responses.RunPage:
        wanted = RunsQuery(
            job=job,
            states=run_states(asked.state),
            origin=origin(asked.origin),
            since=asked.since,
            until=asked.until,
            before=asked.before or None,
            # One more than the page shows, to learn whether there is another page.
            limit=asked.limit + 1,
            beginning=beginning,
        )
        found = await self.service.views.list_runs(wanted)
        shown_runs = found[: asked.limit]
        more = shown_runs[-1].run_id if len(found) > asked.limit else None
        return job_responses.RunPage(runs=[conversion.run(each) for each in shown_runs], next_before=more)

    async def get_run(self, asked: requests.RunRequest) -> job_responses.WholeRun:
        history = await self.service.queries.history(asked.run_id)
        record = history.record
        return job_responses.WholeRun(
            run=conversion.run(record),
            report=conversion.report(build_report(history.run, history.tasks)),
            payload=record.payload,
            node=await self._node(record.owner),
            is_active=record.state not in ENDED,
            may=await self._may_do(record),
        )

    async def _node(self, node: str | None) -> str | None:
        """Returns the node's name, or its id if it has no name or is not in the catalog any more."""
        if node is None:
            return None
        nodes = await self.service.store.nodes()
        return next((each.name for each in nodes if each.node == node and each.name), node)

    async def _may_do(self, record: RunRecord) -> list[str]:
        jobs = await self.service.store.jobs([record.job_name])
        if not jobs or not self.service.gate.holds(Privilege.EXECUTE_JOB, record.job_name, owner=jobs[0].owner):
            return []
        return ["replay"] if record.state in ENDED else ["cancel"]

    async def report(self, asked: requests.RunRequest) -> job_responses.Report:
        return conversion.report(await self.service.queries.report(asked.run_id))

    async def run_output(self, asked: requests.RunOutputRequest) -> job_responses.RunOutput:
        report = await self.service.queries.report(asked.run_id)
        tasks = [task for task in report.tasks if asked.task in (None, task.name)]
        if not tasks and asked.task is not None:
            raise NotFound(
                f"The run has no task {shown(asked.task)}",
                hint=f"Known so far: {', '.join(task.name for task in report.tasks) or 'none'}.",
            )
        found = []
        for task in tasks:
            for attempt in task.attempts:
                part = await self.service.views.output_after(attempt.attempt_id)
                found.append(
                    job_responses.Output(
                        attempt_id=attempt.attempt_id,
                        text=part.text,
                        next=part.next,
                        task=task.name,
                        attempt=attempt.number,
                    )
                )
        return job_responses.RunOutput(id=asked.run_id, output=found)

    async def attempt_output(self, asked: requests.AttemptOutputRequest) -> job_responses.Output:
        part = await self.service.views.output_after(asked.attempt_id, asked.after)
        return job_responses.Output(attempt_id=asked.attempt_id, text=part.text, next=part.next)

    async def cancel(self, asked: requests.CancelRunRequest) -> job_responses.Cancelled:
        state = await self.service.commands.cancel(asked.run_id, asked.reason)
        told = f"{asked.run_id} is asked to stop" if state == "RUNNING" else f"{asked.run_id} is {state}"
        return job_responses.Cancelled(run_id=asked.run_id, state=str(state), message=told)

    async def replay(self, asked: requests.ReplayRun) -> job_responses.Admitted:
        found = await self.service.commands.replay(asked.run_id, asked.reason, asked.task, onwards=asked.onwards)
        history = await self.service.store.history(found.run_id)
        return job_responses.Admitted(
            run_id=found.run_id,
            job=history.record.job_name,
            state=str(found.state),
            fresh=found.fresh,
            message=f"run {found.run_id} does again what {asked.run_id} did",
            replay_of=asked.run_id,
        )
