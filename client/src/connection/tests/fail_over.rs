//! A client with several masters: who leads changes, and calls get through.

use larder_types::{Key, PoolTime, Reason};
use larder_wire::frame::Header;
use larder_wire::master::{Exists, Remove};
use larder_wire::{CallResult, Reply};

use super::*;

fn epoch(term: u64) -> Epoch {
    let generation = 1;
    Epoch { generation, term }
}

/// Three masters by their addresses.
async fn three() -> [Place; 3] {
    [Place::new().await, Place::new().await, Place::new().await]
}

fn start_with(places: &[Place]) -> Master {
    let masters = places.iter().map(|place| place.addr().to_string());
    let options = ClientOptions::new(masters.collect(), token("t"));
    Master::start(&options, Incarnation(5)).0
}

fn exists() -> Request {
    let keys = vec![Key::try_from("k").expect("a key")];
    Request::Exists(Exists { keys, lease: false })
}

async fn ask(master: &Master) -> bool {
    let called = master.call::<Vec<CallResult<bool>>>(exists(), Instant::now() + HANG);
    let answered = soon(called).await.expect("answered");
    answered.answer == [Ok(true)]
}

/// A master's end of a connection behind its welcome.
struct Peer {
    stream: TcpStream,
    decoder: FrameDecoder,
}

impl Place {
    /// Waits for a connection and welcomes it in this term.
    async fn lead(&self, term: u64) -> Peer {
        let welcome = Welcome {
            epoch: epoch(term),
            ..welcome()
        };
        let (_, stream) = self.reply(0, &welcome).await;
        let mut decoder = FrameDecoder::before_hello();
        decoder.accept(0);
        Peer { stream, decoder }
    }

    /// Waits for a connection and says who leads.
    async fn stand_by(&self, leader: Option<&Self>) {
        let leader = leader.map(|leader| leader.addr().to_string());
        self.reply(FLAG_ERROR, &Refused::not_leader(leader)).await;
    }

    /// Stands by until the test ends, and knows nothing.
    async fn stand_by_for_ever(&self) -> ! {
        loop {
            self.stand_by(None).await;
        }
    }
}

impl Peer {
    async fn next(&mut self) -> Header {
        loop {
            if let Some((header, _)) = self.decoder.next_frame().expect("a frame") {
                return header;
            }
            let bytes = self.stream.read(self.decoder.space()).await;
            let bytes = bytes.expect("readable");
            assert!(bytes > 0, "it closed");
            self.decoder.filled(bytes);
        }
    }

    /// Answers the next call.
    async fn answer(&mut self, term: u64) {
        let header = self.next().await;
        let reply = Reply {
            epoch: epoch(term),
            pool_time: PoolTime(0),
            answer: vec![CallResult::Ok(true)],
        };
        self.send(&header, &reply).await;
    }

    async fn send(&mut self, to: &Header, body: &impl serde::Serialize) {
        let mut frame = Frame::reply(to, 0);
        frame.session = 7;
        let mut out = Vec::new();
        encode_frame(&mut out, frame, body).expect("a frame");
        self.stream.write_all(&out).await.expect("writable");
    }

    async fn say_goodbye(mut self, refused: &Refused) {
        let frame = Frame::request(Kind::Goodbye, 0, 7, larder_wire::frame::NO_DEADLINE);
        let mut out = Vec::new();
        encode_frame(&mut out, frame, refused).expect("a frame");
        self.stream.write_all(&out).await.expect("writable");
    }
}

/// What happens beside the calls, until they are done.
async fn beside<T>(calls: impl Future<Output = T>, world: impl Future<Output = ()>) -> T {
    let world = async {
        world.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        done = calls => done,
        () = world => unreachable!("it does not end"),
    }
}

#[tokio::test]
async fn a_hint_leads_to_the_leader_without_asking_the_others() {
    let places = three().await;
    let master = start_with(&places);
    let world = async {
        // Whoever comes to the second would wait for ever.
        places[0].stand_by(Some(&places[2])).await;
        let mut peer = places[2].lead(1).await;
        peer.answer(1).await;
        std::future::pending::<()>().await;
    };
    assert!(beside(ask(&master), world).await);
}

#[tokio::test]
async fn a_hint_at_somebody_else_is_not_followed() {
    let places = three().await;
    let stranger = Place::new().await;
    let master = start_with(&places);
    let world = async {
        places[0].stand_by(Some(&stranger)).await;
        places[1].stand_by(Some(&stranger)).await;
        let mut peer = places[2].lead(1).await;
        peer.answer(1).await;
        std::future::pending::<()>().await;
    };
    let trap = async {
        let _ = stranger.0.accept().await;
        panic!("our token is shown to a stranger");
    };
    assert!(
        beside(ask(&master), async {
            tokio::join!(world, trap);
        })
        .await
    );
}

#[tokio::test]
async fn calls_wait_while_nobody_leads() {
    let places = three().await;
    let master = start_with(&places);
    let world = async {
        for _ in 0..4 {
            tokio::join!(
                places[0].stand_by(None),
                places[1].stand_by(None),
                places[2].stand_by(None)
            );
        }
        let mut peer = tokio::select! {
            _ = places[0].stand_by_for_ever() => unreachable!("it stands by"),
            _ = places[2].stand_by_for_ever() => unreachable!("it stands by"),
            peer = places[1].lead(1) => peer,
        };
        peer.answer(1).await;
        std::future::pending::<()>().await;
    };
    assert!(beside(ask(&master), world).await);
}

/// Also for somebody who asked not to wait for masters that are down.
#[tokio::test]
async fn a_leader_that_stops_is_no_verdict_while_there_are_others() {
    let places = three().await;
    let master = start_with(&places);
    let connected = master.connected(Instant::now() + HANG, false);
    let world = async {
        tokio::join!(
            places[0].answer(Some(RefusedReason::Stopping)),
            places[1].stand_by(None),
            places[2].stand_by(None)
        );
        let peer = tokio::select! {
            _ = places[0].stand_by_for_ever() => unreachable!("it stands by"),
            _ = places[2].stand_by_for_ever() => unreachable!("it stands by"),
            peer = places[1].lead(1) => peer,
        };
        std::future::pending::<()>().await;
        drop(peer);
    };
    assert!(beside(soon(connected), world).await.is_ok());
}

#[tokio::test]
async fn a_master_that_does_not_answer_the_hello_holds_nobody_up() {
    let places = three().await;
    let master = start_with(&places);
    let world = async {
        let _silent = places[0].0.accept().await.expect("a connection");
        let _silent_too = places[1].0.accept().await.expect("a connection");
        let mut peer = places[2].lead(1).await;
        peer.answer(1).await;
        std::future::pending::<()>().await;
    };
    assert!(beside(ask(&master), world).await);
}

#[tokio::test]
async fn calls_in_flight_are_repeated_at_the_next_leader_or_told_that_nobody_knows() {
    let places = three().await;
    let master = start_with(&places);
    let remove = async {
        let request = Request::Remove(Remove {
            keys: vec![Key::try_from("k").expect("a key")],
            if_unleased: false,
        });
        let called = master.call::<Vec<CallResult<()>>>(request, Instant::now() + HANG);
        soon(called).await
    };
    let world = async {
        let mut old = places[0].lead(1).await;
        let kinds = [old.next().await.kind, old.next().await.kind];
        assert!(kinds.contains(&Kind::Exists) && kinds.contains(&Kind::Remove));
        old.say_goodbye(&Refused::not_leader(Some(places[2].addr().to_string())))
            .await;
        let mut new = places[2].lead(2).await;
        new.answer(2).await;
        std::future::pending::<()>().await;
    };
    let (exists, removed) = beside(async { tokio::join!(ask(&master), remove) }, world).await;
    assert!(exists);
    let error = removed.expect_err("the old leader may have done it");
    assert!(
        matches!(error, ClientError::ConnectionLost { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_leader_that_stops_answering_is_left_for_one_of_a_higher_epoch() {
    let places = three().await;
    let master = start_with(&places);
    let world = async {
        let mut paused = places[0].lead(4).await;
        assert_eq!(paused.next().await.kind, Kind::Exists);
        // One that was deposed earlier, and does not know it, is no better.
        let (_older, ()) = tokio::join!(places[1].lead(3), places[2].stand_by(None));
        let mut new = tokio::select! {
            _ = places[1].stand_by_for_ever() => unreachable!("it stands by"),
            new = places[2].lead(5) => new,
        };
        // It stays connected: nothing but silence tells.
        new.answer(5).await;
        drop(paused);
        std::future::pending::<()>().await;
    };
    assert!(beside(ask(&master), world).await);
}

#[tokio::test]
async fn a_master_that_was_deposed_is_not_taken_for_the_leader() {
    let places = three().await;
    let master = start_with(&places);
    let world = async {
        drop(places[0].lead(4).await);
        let _older = places[1].lead(3).await;
        let mut new = places[2].lead(5).await;
        new.answer(5).await;
        std::future::pending::<()>().await;
    };
    assert!(beside(ask(&master), world).await);
}

#[tokio::test]
async fn a_call_that_is_told_so_goes_to_the_next_leader() {
    let places = three().await;
    let master = start_with(&places);
    let world = async {
        let mut old = places[0].lead(1).await;
        let header = old.next().await;
        let mut frame = Frame::reply(&header, FLAG_ERROR);
        frame.session = 7;
        let mut out = Vec::new();
        encode_frame(&mut out, frame, &CallError::new(Reason::NotLeader)).expect("a frame");
        old.stream.write_all(&out).await.expect("writable");
        let mut new = places[1].lead(2).await;
        new.answer(2).await;
        std::future::pending::<()>().await;
    };
    assert!(beside(ask(&master), world).await);
}
