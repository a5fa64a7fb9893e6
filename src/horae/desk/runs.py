"""Questions about runs."""

from __future__ import annotations

from horae.core.access import Privilege
from horae.core.report import build_report
from horae.desk import asking, making, shapes
from horae.desk.about import Part
from horae.desk.words import ENDED, origin, run_states
from horae.errors import NotFound, shown
from horae.store.board import RunsAsked
from horae.store.port import RunRecord


class Runs(Part):
    """Runs listed and shown, what they printed, cancelled, done again."""

    async def list_runs(self, asked: asking.ListRuns) -> shapes.RunPage:
        return await self._page(asked, asked.job, asked.id)

    async def job_runs(self, asked: asking.JobRuns) -> shapes.RunPage:
        return await self._page(asked, asked.name)

    async def _page(
        self, asked: asking.ListRuns | asking.JobRuns, job: str | None, beginning: str | None = None
    ) -> shapes.RunPage:
        wanted = RunsAsked(
            job=job,
            states=run_states(asked.state),
            origin=origin(asked.origin),
            since=asked.since,
            until=asked.until,
            before=asked.before or None,
            # One more than is shown tells whether there is another page.
            limit=asked.limit + 1,
            beginning=beginning,
        )
        found = await self.service.views.list_runs(wanted)
        shown_runs = found[: asked.limit]
        more = shown_runs[-1].run_id if len(found) > asked.limit else None
        return shapes.RunPage(runs=[making.run(each) for each in shown_runs], next_before=more)

    async def get_run(self, asked: asking.ThatRun) -> shapes.WholeRun:
        history = await self.service.queries.history(asked.run_id)
        record = history.record
        return shapes.WholeRun(
            run=making.run(record),
            report=making.report(build_report(history.run, history.tasks)),
            payload=record.payload,
            node=await self._node(record.owner),
            is_active=record.state not in ENDED,
            may=await self._may_do(record),
        )

    async def _node(self, node: str | None) -> str | None:
        """A node by its name, where it has one and is still known."""
        if node is None:
            return None
        nodes = await self.service.store.nodes()
        return next((each.name for each in nodes if each.node == node and each.name), node)

    async def _may_do(self, record: RunRecord) -> list[str]:
        jobs = await self.service.store.jobs([record.job_name])
        if not jobs or not self.service.gate.holds(Privilege.EXECUTE_JOB, record.job_name, owner=jobs[0].owner):
            return []
        return ["replay"] if record.state in ENDED else ["cancel"]

    async def report(self, asked: asking.ThatRun) -> shapes.Report:
        return making.report(await self.service.queries.report(asked.run_id))

    async def run_output(self, asked: asking.OfOutput) -> shapes.RunOutput:
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
                    shapes.Output(
                        attempt_id=attempt.attempt_id,
                        text=part.text,
                        next=part.next,
                        task=task.name,
                        attempt=attempt.number,
                    )
                )
        return shapes.RunOutput(id=asked.run_id, output=found)

    async def attempt_output(self, asked: asking.OfAttempt) -> shapes.Output:
        part = await self.service.views.output_after(asked.attempt_id, asked.after)
        return shapes.Output(attempt_id=asked.attempt_id, text=part.text, next=part.next)

    async def cancel(self, asked: asking.CancelRun) -> shapes.Cancelled:
        state = await self.service.commands.cancel(asked.run_id, asked.reason)
        told = f"{asked.run_id} is asked to stop" if state == "RUNNING" else f"{asked.run_id} is {state}"
        return shapes.Cancelled(run_id=asked.run_id, state=str(state), message=told)

    async def replay(self, asked: asking.ReplayRun) -> shapes.Admitted:
        found = await self.service.commands.replay(asked.run_id, asked.reason, asked.task, onwards=asked.onwards)
        history = await self.service.store.history(found.run_id)
        return shapes.Admitted(
            run_id=found.run_id,
            job=history.record.job_name,
            state=str(found.state),
            fresh=found.fresh,
            message=f"run {found.run_id} does again what {asked.run_id} did",
            replay_of=asked.run_id,
        )
