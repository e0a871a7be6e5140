//! Views: slabs of the local agent, read in place.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;

use larder_types::{SlabRef, Version};
use larder_wire::checksum::block_crcs;
use larder_wire::data::{DataError, DataReason, OpenView, ViewOpened};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY};
use larder_wire::{FrameError, Header, Kind, SignedCapability};
use tokio::time::Instant;

use super::port::Port;
use crate::lane::{FdStream, FrameReader, Lane, LaneError, Socket, has_ended, session_bits};
use crate::memory::ViewMap;
use crate::transport::{TransferError, remaining_ms};

/// So many slabs stay mapped; then a new connection starts over, and the old mappings go with
/// their last views. A mapping is an entry of 65,530 that the kernel allows by default.
const MAPS_MAX: usize = 8_192;

/// One extent's bytes in place. They stay as they are until it is dropped, which tells the agent
/// without waiting for it. If the agent ends the connection (its tenant was deleted, or it was
/// replaced), the memory stays readable but nothing holds the bytes any more: they may read as
/// zeros, which [`Self::verify`] finds.
#[derive(Debug)]
pub struct View {
    map: Arc<ViewMap>,
    offset_bytes: u64,
    length_bytes: u64,
    version: Version,
    block_crcs: Vec<u32>,
    /// Closes it; last, so that nothing reads after that.
    _hold: Hold,
}

impl View {
    /// The version of the bytes.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// CRC-32C of each 64 KiB block, from the agent's record.
    #[must_use]
    pub fn block_crcs(&self) -> &[u32] {
        &self.block_crcs
    }

    /// Whether the bytes match their checksums. Reads all of them.
    #[must_use]
    pub fn verify(&self) -> bool {
        block_crcs(self) == self.block_crcs
    }
}

impl Deref for View {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // Was within the map when the view was opened; a map does not shrink.
        self.map
            .slice(self.offset_bytes, self.length_bytes)
            .unwrap_or_default()
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The agent's hold on a view's bytes.
#[derive(Debug)]
struct Hold {
    port: Arc<Port>,
    view: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.port.close_view(self.view);
    }
}

/// The connection on which views are opened.
#[derive(Debug)]
pub(super) struct Views {
    stream: FdStream,
    reader: FrameReader,
    port: Arc<Port>,
    maps: BTreeMap<SlabRef, Arc<ViewMap>>,
}

impl Views {
    pub(super) fn new(lane: Lane<FdStream>) -> Self {
        let (stream, reader, _, welcome) = lane.into_parts();
        let port = Arc::new(Port::new(stream.share(), session_bits(&welcome)));
        Self {
            stream,
            reader,
            port,
            maps: BTreeMap::new(),
        }
    }

    /// Whether the agent is gone, or the connection has served enough slabs.
    pub(super) fn has_ended(&self) -> bool {
        self.maps.len() >= MAPS_MAX || has_ended(self.stream.as_fd())
    }

    /// Opens a view. The outer error means that the connection must not be used for another.
    pub(super) async fn open(
        &mut self,
        capability: &SignedCapability,
        deadline: Instant,
    ) -> Result<Result<View, DataError>, TransferError> {
        let body = OpenView {
            capability: capability.clone(),
        };
        let request = self
            .port
            .post(Kind::OpenView, &body, remaining_ms(deadline))?;
        self.port.flush().await.map_err(LaneError::from)?;
        loop {
            let header = self
                .reader
                .next(&mut self.stream)
                .await?
                .ok_or(LaneError::Closed)?;
            if header.kind == Kind::Goodbye {
                return Err(TransferError::HelloRefused(self.reader.decode()?));
            }
            let right = header.session == self.port.session()
                && header.kind == Kind::OpenView
                && header.has(FLAG_REPLY)
                && header.request <= request;
            if !right {
                return Err(FrameError::Body { kind: header.kind }.into());
            }
            let opened = self.take(&header)?;
            if header.request == request {
                return Ok(opened);
            }
            // The answer to a call that was cut off: its view is closed by being dropped here.
        }
    }

    fn take(&mut self, header: &Header) -> Result<Result<View, DataError>, TransferError> {
        if header.has(FLAG_ERROR) {
            return Ok(Err(self.reader.decode()?));
        }
        let opened: ViewOpened = self.reader.decode()?;
        let hold = Hold {
            port: Arc::clone(&self.port),
            view: opened.view,
        };
        if opened.carries_memory {
            let fd = self
                .stream
                .take_fd()
                .ok_or(FrameError::Body { kind: header.kind })?;
            let map = ViewMap::map(fd, opened.slab_bytes).map_err(|error| DataError {
                reason: DataReason::Limit,
                detail: error.to_string(),
            })?;
            self.maps.insert(opened.slab, Arc::new(map));
        }
        let map = self.maps.get(&opened.slab).map(Arc::clone);
        let map = map.ok_or(FrameError::Body { kind: header.kind })?;
        if map
            .slice(opened.offset_bytes, opened.length_bytes)
            .is_none()
        {
            return Err(FrameError::Body { kind: header.kind }.into());
        }
        Ok(Ok(View {
            map,
            offset_bytes: opened.offset_bytes,
            length_bytes: opened.length_bytes,
            version: opened.version,
            block_crcs: opened.block_crcs,
            _hold: hold,
        }))
    }
}
