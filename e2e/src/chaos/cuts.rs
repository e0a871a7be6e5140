//! Faults that cut masters off from each other.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::chaos::inject::AFTER;
use crate::chaos::masters::{leader, standby, until_whole};
use crate::chaos::network::Network;
use crate::chaos::now_ns;
use crate::chaos::probe::Probe;
use crate::chaos::round::Run;
use crate::pool::Document;

/// How the leader is cut off.
#[derive(Clone, Copy, Debug)]
enum Cutting {
    Cable,
    Masters,
    Outwards,
    Inwards,
}

impl Run<'_> {
    fn network(&self) -> Result<&Network> {
        let network = self.scene.network.as_ref();
        network.context("the masters have no networks of their own")
    }

    pub(super) fn partition(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let at = self.scene.master(&leader(document)?.name)?;
        let others: Vec<usize> = (0..self.scene.masters.len()).filter(|n| *n != at).collect();
        let all = [
            Cutting::Cable,
            Cutting::Masters,
            Cutting::Outwards,
            Cutting::Inwards,
        ];
        let how = all[self.dice.place(all.len())];
        self.note(format!("the leader {at} is cut off: {how:?}"));
        let change = |run: &mut Self, cuts: bool| -> Result<()> {
            let network = run.network()?;
            let link = |from: usize, to: &[usize]| match cuts {
                true => network.block(from, to),
                false => network.unblock(from, to),
            };
            match (how, cuts) {
                (Cutting::Cable, true) => return network.unplug(at),
                (Cutting::Cable, false) => return network.plug_in(at),
                _ => {}
            }
            if !matches!(how, Cutting::Inwards) {
                link(at, &others)?;
            }
            if !matches!(how, Cutting::Outwards) {
                for other in &others {
                    link(*other, &[at])?;
                }
            }
            Ok(())
        };
        let begin = |run: &mut Self| change(run, true);
        self.while_out(document, probe, begin, |run| change(run, false))
    }

    /// The leader and one standby against the three others.
    pub(super) fn partition_pair(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let first = self.scene.master(&leader(document)?.name)?;
        let chosen = self.dice.place(4);
        let second = self.scene.master(&standby(document, chosen)?.name)?;
        let pair = [first, second];
        let others: Vec<usize> = (0..self.scene.masters.len())
            .filter(|n| !pair.contains(n))
            .collect();
        self.note(format!("the masters {pair:?} are cut off"));
        let change = |run: &mut Self, cuts: bool| -> Result<()> {
            let network = run.network()?;
            for (side, far) in [(&pair[..], &others[..]), (&others, &pair)] {
                for at in side {
                    match cuts {
                        true => network.block(*at, far)?,
                        false => network.unblock(*at, far)?,
                    }
                }
            }
            Ok(())
        };
        let begin = |run: &mut Self| change(run, true);
        self.while_out(document, probe, begin, |run| change(run, false))
    }

    /// What writes cost while a standby is away, and when it is back.
    pub(super) fn follower_cut(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let chosen = self.dice.place(2);
        let at = self.scene.master(&standby(document, chosen)?.name)?;
        self.note(format!("the standby {at} is cut off"));
        let begun = Instant::now();
        let cut_ns = now_ns();
        self.network()?.unplug(at)?;
        let put = self.first_put(probe);
        self.last(begun);
        let healed_ns = now_ns();
        self.network()?.plug_in(at)?;
        put?;
        self.note("the standby is plugged in".to_owned());
        until_whole(&self.scene.pool)?;
        self.note("it follows".to_owned());
        std::thread::sleep(AFTER);
        self.windows.push(("cut", cut_ns, healed_ns));
        self.windows.push(("heal", healed_ns, now_ns()));
        Ok(())
    }
}
