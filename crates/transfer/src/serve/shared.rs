//! Calls of the Unix socket: buffers lent by the client, writes pulled from them, and views.

use larder_wire::data::{
    BufferRegistered, CloseView, DataError, DataReason, OpenView, Pull, RegisterBuffer,
    UnregisterBuffer, ViewOpened,
};
use larder_wire::{Frame, Header, Kind};

use super::connection::Connection;
use super::session::{Begun, Held};
use crate::ForeignMap;
use crate::lane::{LaneError, Socket};

/// How much of a client's buffer is copied in one turn, in bytes: about 0.2 ms, then the
/// thread's other connections are served. A multiple of the block size.
const PULL_STEP_BYTES: u64 = 1024 * 1024;

impl<S: Socket> Connection<S> {
    pub(super) async fn shared_call(&mut self, header: &Header) -> Result<(), LaneError> {
        match header.kind {
            Kind::RegisterBuffer => {
                let body: RegisterBuffer = self.reader.decode()?;
                match self.register(&body) {
                    Ok(buffer) => self.answer(header, &BufferRegistered { buffer }).await,
                    Err(refused) => self.refuse(header, refused).await,
                }
            }
            Kind::UnregisterBuffer => {
                let body: UnregisterBuffer = self.reader.decode()?;
                match self.held().and_then(|held| held.remove_buffer(body.buffer)) {
                    Ok(()) => self.answer(header, &()).await,
                    Err(refused) => self.refuse(header, refused).await,
                }
            }
            Kind::Pull => {
                let body: Pull = self.reader.decode()?;
                match self.pull(&body).await {
                    Ok(receipt) => self.answer(header, &receipt).await,
                    Err(refused) => self.refuse(header, refused).await,
                }
            }
            Kind::OpenView => self.open_view(header).await,
            Kind::CloseView => {
                let body: CloseView = self.reader.decode()?;
                match self.held().map(|held| held.close_view(body.view)) {
                    Ok(true) => self.answer(header, &()).await,
                    Ok(false) => self.refuse(header, DataReason::BufferUnknown.into()).await,
                    Err(refused) => self.refuse(header, refused).await,
                }
            }
            _ => self.refuse(header, DataReason::Unsupported.into()).await,
        }
    }

    fn held(&mut self) -> Result<&mut Held, DataError> {
        self.held
            .as_mut()
            .ok_or_else(|| DataReason::Unsupported.into())
    }

    fn register(&mut self, body: &RegisterBuffer) -> Result<u64, DataError> {
        let fd = self.stream.take_fd();
        let fd = fd.ok_or_else(|| refused_buffer("no descriptor came with the frame"))?;
        let map = ForeignMap::map(fd, body.length_bytes);
        let map = map.map_err(|error| refused_buffer(&error.to_string()))?;
        self.held()?.add_buffer(map)
    }

    async fn pull(&mut self, body: &Pull) -> Result<larder_wire::Receipt, DataError> {
        let buffer = self.held()?.buffer(body.buffer)?;
        let reached = self.reached.clone();
        let writing = match reached.begin_write(&body.capability, self.now())? {
            Begun::Go(writing) => writing,
            Begun::Already(receipt, crcs) if crcs == body.block_crcs => return Ok(receipt),
            Begun::Already(..) => return Err(DataReason::Checksum.into()),
        };
        let length = writing.length_bytes;
        let end = body.offset_bytes.checked_add(length);
        if end.is_none_or(|end| end > buffer.bytes()) {
            let detail = format!("{length} bytes do not lie within the buffer");
            return Err(DataError {
                reason: DataReason::OutOfBounds,
                detail,
            });
        }
        let mut own_crcs = Vec::new();
        let mut done = 0;
        while done < length {
            let step = (length - done).min(PULL_STEP_BYTES);
            let (to, from) = (writing.offset_bytes + done, body.offset_bytes + done);
            let copied = writing.memory.copy_from(to, &buffer, from, step);
            own_crcs.extend(copied.map_err(|error| {
                tracing::error!(%error, "a buffer could not be pulled");
                DataError::new(DataReason::Internal)
            })?);
            done += step;
            if done < length {
                tokio::task::yield_now().await;
            }
        }
        let receipt = writing.finish(&body.block_crcs, &own_crcs)?;
        self.options.metrics.moved(Kind::Pull, length);
        Ok(receipt)
    }

    async fn open_view(&mut self, header: &Header) -> Result<(), LaneError> {
        let body: OpenView = self.reader.decode()?;
        if header.request == 0 {
            // Nobody would learn its number.
            return Err(LaneError::Mismatch { what: "request" });
        }
        let opened = match self.begin_view(&body) {
            Ok(opened) => opened,
            Err(refused) => return self.refuse(header, refused).await,
        };
        self.writer.push(Frame::reply(header, 0), &opened)?;
        self.flush().await?;
        self.options
            .metrics
            .moved(Kind::OpenView, opened.length_bytes);
        Ok(())
    }

    fn begin_view(&mut self, body: &OpenView) -> Result<ViewOpened, DataError> {
        self.held()?.room_for_view()?;
        let now = self.now();
        let reached = self.reached.clone();
        let ticket = reached
            .segments
            .with(|all| all.open_view(&reached.tenant, &body.capability, now))?;
        let (slab, memory) = (ticket.slab, std::sync::Arc::clone(&ticket.memory));
        let mut opened = ViewOpened {
            view: 0,
            version: ticket.version,
            slab,
            slab_bytes: memory.bytes(),
            carries_memory: false,
            offset_bytes: ticket.offset_bytes,
            length_bytes: ticket.length_bytes,
            block_crcs: ticket.block_crcs.clone(),
        };
        // From here on it is let go with the connection's other views.
        let held = self.held()?;
        opened.view = held.add_view(ticket);
        opened.carries_memory = !held.has_mapped(&slab);
        if opened.carries_memory {
            match memory.read_only_fd() {
                Ok(fd) => self.stream.send_fd(fd),
                Err(error) => {
                    tracing::error!(%error, "a slab could not be lent");
                    self.held()?.close_view(opened.view);
                    return Err(DataReason::Internal.into());
                }
            }
            self.held()?.now_mapped(slab);
        }
        Ok(opened)
    }
}

fn refused_buffer(detail: &str) -> DataError {
    DataError {
        reason: DataReason::BufferRefused,
        detail: detail.to_owned(),
    }
}
