//! One of each message between engines.

use larder_wire::Kind;
use larder_wire::engine::{
    BufferAccess, Changes, Described, EngineCut, EngineRead, EngineWrite, Known, Notice, Refusal,
    Region,
};
use larder_wire::location::Location;

use super::samples::{Sample, sample};

pub(super) fn all() -> Vec<Sample> {
    let known = Known {
        added: 300,
        removed: 301,
    };
    let regions = [(4_096, Location::Cuda(3)), (8_192, Location::Cpu(1))];
    let regions = regions.map(|(end_bytes, location)| Region {
        end_bytes,
        location,
    });
    let changes = Changes {
        is_whole: true,
        removed: vec![4, 5],
        added: vec![Described {
            registration: 6,
            epoch: 2,
            start: 0x7f00_0000_0000,
            bytes: 8_192,
            regions: regions.to_vec(),
            access: BufferAccess {
                read: true,
                write: false,
            },
        }],
        known,
        has_more: true,
    };
    let write = EngineWrite {
        registration: 6,
        epoch: 2,
        offset_bytes: 4_096,
    };
    let read = EngineRead {
        registration: 6,
        epoch: 2,
        offset_bytes: 4_096,
        length_bytes: 100,
    };
    let notice = Notice {
        name: "step".to_owned(),
        message: vec![1, 2],
    };
    vec![
        sample("Known", Kind::EngineChanges, &known),
        sample("Changes", Kind::EngineChanges, &changes),
        sample("EngineWrite", Kind::EngineWrite, &write),
        sample("EngineRead", Kind::EngineRead, &read),
        sample("Refusal", Kind::EngineRead, &Refusal::StaleEpoch),
        sample("Notice", Kind::EngineNotice, &notice),
        sample("EngineCut", Kind::EngineCut, &EngineCut { session: 300 }),
    ]
}
