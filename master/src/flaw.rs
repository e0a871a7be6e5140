//! Mistakes that a master can be made with, to prove that the simulator finds them.
//!
//! Without the feature `sim` there is none, and what asks for one is compiled away.

/// A mistake that masters were really made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "sim"),
    expect(unreachable_pub, reason = "only the simulator names one")
)]
pub enum Mistake {
    /// It answers before what it says is committed.
    ToldBeforeCommitted,
    /// It says that an entry is durable when it is only written, and leaves the rest to the kernel.
    ToldBeforeDurable,
    /// It serves for as long as it does not know better, whatever its lease says.
    LeaseUnchecked,
    /// After a restart it has forgotten that it promised its silence to a leader.
    PromiseForgotten,
    /// After a loss of power it trusts all of its log.
    TailTrusted,
    /// A standby does not do all that the leader did.
    ReplayDiffers,
    /// After a restart it goes on as the leader of the term in which it led.
    TermLivedTwice,
    /// A pool that is made again, or that begins, is served before any agent was heard.
    ServesUnheard,
}

#[cfg(feature = "sim")]
impl Mistake {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ToldBeforeCommitted,
        Self::ToldBeforeDurable,
        Self::LeaseUnchecked,
        Self::PromiseForgotten,
        Self::TailTrusted,
        Self::ReplayDiffers,
        Self::TermLivedTwice,
        Self::ServesUnheard,
    ];
}

/// The mistake of this master, if it was made with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flaw {
    #[cfg(feature = "sim")]
    pub(crate) made: Option<Mistake>,
}

impl Flaw {
    /// Whether this master was made with this mistake.
    #[cfg_attr(
        not(feature = "sim"),
        expect(clippy::unused_self, reason = "without the simulator nobody has one")
    )]
    pub(crate) fn is(self, mistake: Mistake) -> bool {
        #[cfg(feature = "sim")]
        let is = self.made == Some(mistake);
        #[cfg(not(feature = "sim"))]
        let is = {
            let _nobody_has_it = mistake;
            false
        };
        is
    }
}
