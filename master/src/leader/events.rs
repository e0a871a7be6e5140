//! Subscribers of cache events: answered when there is something, or after a while with nothing.

use larder_types::Reason;
use larder_wire::events::{EventPage, Subscribe};
use larder_wire::limit::MAX_EVENT_WAIT_MS;
use larder_wire::{CallError, CallResult, Frame, Header, Reply, encode_frame};

use super::Leading;
use crate::event::ConnectionId;
use crate::events::{Events, Waiter};
use crate::log::Log;

impl<L: Log> Leading<L> {
    /// The same leader with cache events.
    pub(crate) fn with_events(mut self, events: Events) -> Self {
        self.events = Some(events);
        self
    }

    /// A subscriber asks for what comes next.
    pub(super) fn subscribe(&mut self, connection: ConnectionId, header: &Header, call: Subscribe) {
        match self.try_subscribe(connection, header, call) {
            Ok(Some(page)) => self.answer_events(connection, header, page),
            Ok(None) => {}
            Err(error) => self.refuse_call(connection, header, &error),
        }
    }

    /// The answer, if there is one at once; else the caller waits.
    fn try_subscribe(
        &mut self,
        connection: ConnectionId,
        header: &Header,
        call: Subscribe,
    ) -> CallResult<Option<EventPage>> {
        let refuse = |reason, detail: &str| {
            Err(CallError {
                reason,
                detail: detail.to_owned(),
            })
        };
        let link = self.links.get(connection);
        let Some(tenant) = link.and_then(|link| link.tenant()).cloned() else {
            return refuse(Reason::AccessDenied, "only tenants have cache events");
        };
        let Some(events) = &mut self.events else {
            let detail = "cache events are off; set `events` in the master's configuration";
            return refuse(Reason::Unsupported, detail);
        };
        let known = self.core.state.tenant(&tenant);
        if !known.is_some_and(|known| known.policy().access.reads()) {
            return refuse(Reason::AccessDenied, "this tenant may not read");
        }
        let page = events.read(&tenant, call.from);
        let wait_ms = call.wait_ms.min(MAX_EVENT_WAIT_MS);
        let is_empty = matches!(&page, EventPage::Events { entries, .. } if entries.is_empty());
        let Some(from) = call.from.filter(|_| is_empty && wait_ms > 0) else {
            return Ok(Some(page));
        };
        if !events.waiting.has_room() {
            return refuse(Reason::Overloaded, "too many subscribers wait already");
        }
        let until = self.core.now.plus_ms(u64::from(wait_ms));
        let displaced = events.waiting.displaced(connection);
        let waiter = Waiter::new((connection, *header), tenant, from, until);
        events.waiting.insert(waiter);
        if let Some(displaced) = displaced {
            self.answer_waiter(&displaced);
        }
        Ok(None)
    }

    /// Answers the subscribers that have waited long enough.
    pub(super) fn end_waits(&mut self) {
        let now = self.core.now;
        while let Some(waiter) = self
            .events
            .as_mut()
            .and_then(|events| events.waiting.next_late(now))
        {
            self.answer_waiter(&waiter);
        }
    }

    /// Tells everybody who waits of what this turn has brought.
    pub(super) fn tell_events(&mut self) {
        let Some(events) = &mut self.events else {
            return;
        };
        for tenant in events.publish() {
            let waiters = self
                .events
                .as_mut()
                .map(|events| events.waiting.take_tenant(&tenant));
            for waiter in waiters.unwrap_or_default() {
                self.answer_waiter(&waiter);
            }
        }
    }

    fn answer_waiter(&mut self, waiter: &Waiter) {
        let Some(events) = &self.events else { return };
        let page = events.read(&waiter.tenant, Some(waiter.from));
        self.answer_events(waiter.connection, &waiter.header, page);
    }

    fn answer_events(&mut self, connection: ConnectionId, header: &Header, page: EventPage) {
        self.metrics.answered_one(header.kind);
        // Request 0 wants no reply.
        if header.request == 0 {
            return;
        }
        let reply = Reply {
            epoch: self.core.epoch(),
            pool_time: self.core.now,
            answer: page,
        };
        self.links.reply(connection, |out| {
            if let Err(error) = encode_frame(out, Frame::reply(header, 0), &reply) {
                tracing::error!(%error, "a page of events does not encode");
                crate::rpc::fail(out, header, &CallError::new(Reason::Internal));
            }
        });
    }
}
