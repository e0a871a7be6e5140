//! Rails that break, go silent or lead nowhere.

use std::cell::Cell;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// What a proxy does to the connections after the first, which is for control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The first so many are broken after 1 MiB.
    Break(u32),
    /// On the first so many nothing moves any more after 1 MiB.
    Silence(u32),
}

/// Stands between an endpoint and its peer.
async fn proxy(to: String, fate: Fate) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let addr = listener.local_addr().expect("bound").to_string();
    spawn_local(async move {
        let count = Rc::new(Cell::new(0));
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&to).await.expect("loopback");
            let (mut near_in, mut near_out) = near.into_split();
            let (mut far_in, mut far_out) = far.into_split();
            let number = count.get();
            count.set(number + 1);
            spawn_local(async move { tokio::io::copy(&mut far_in, &mut near_out).await });
            spawn_local(async move {
                let mut moved = 0_u64;
                let mut room = vec![0; 64 * 1024];
                while let Ok(read) = near_in.read(&mut room).await {
                    if read == 0 || far_out.write_all(&room[..read]).await.is_err() {
                        return;
                    }
                    moved += read as u64;
                    let (Fate::Break(several) | Fate::Silence(several)) = fate;
                    if moved > MIB && (1..=several).contains(&number) {
                        if fate == Fate::Silence(several) {
                            std::future::pending::<()>().await;
                        }
                        return;
                    }
                }
            });
        }
    });
    addr
}

#[test]
fn what_breaks_or_goes_silent_is_made_up_for_by_other_rails() {
    for fate in [Fate::Break(2), Fate::Silence(2)] {
        run(async move {
            let there = served(2).await;
            let mut hasty = options(1);
            hasty.stall_ms = 1_000;
            let here = Endpoint::new(hasty);
            let bytes = 64 * MIB;
            let (remote, _) = buffer(&there.endpoint, bytes, 1);
            let (local, _) = buffer(&here, bytes, 2);
            let addr = proxy(there.addr.clone(), fate).await;
            let peer = here.open(&addr).await.expect("it listens");
            let range = [whole(&local, &remote)];
            let outcome = here.transfer(peer, Direction::Write, &range, soon()).await;
            let outcome = outcome.expect("two rails are left");
            assert!(outcome.timeline.retries > 0, "{fate:?}: {outcome:?}");
            assert!(content(&remote) == pattern(2, bytes), "{fate:?}");
        });
    }
}

/// A rail whose bytes are held back for a while, and come when nobody expects them any more.
#[test]
fn what_is_held_back_on_a_broken_rail_does_not_overwrite_what_came_later() {
    run(async {
        let there = served(2).await;
        let mut hasty = options(1);
        hasty.stall_ms = 1_000;
        hasty.lanes = 2;
        let here = Endpoint::new(hasty);
        let (remote, _) = buffer(&there.endpoint, 4_096, 1);
        let (old, _) = buffer(&here, 4_096, 2);
        let (new, _) = buffer(&here, 4_096, 3);
        let (release, released) = watch::channel(false);
        let (held, mut has_held) = watch::channel(0);
        let addr = holding(there.addr.clone(), released, held).await;
        let peer = here.open(&addr).await.expect("it listens");
        // The first rail holds it; the second one does it after the first was given up.
        let outcome = here
            .transfer(peer, Direction::Write, &[whole(&old, &remote)], soon())
            .await;
        let retries = outcome.expect("another way").timeline.retries;
        assert!(
            retries > 0 && *has_held.borrow() > 4_096,
            "{retries} retries"
        );
        assert!(content(&remote) == pattern(2, 4_096));
        let done = here
            .transfer(peer, Direction::Write, &[whole(&new, &remote)], soon())
            .await;
        done.expect("done");
        release.send(true).expect("it waits");
        let passed_on = has_held.wait_for(|held| *held == u64::MAX).await;
        passed_on.expect("the proxy lives");
        // More than enough turns for the other side, which has the same thread.
        for _ in 0..100 {
            here.refresh(peer).await.expect("it answers");
        }
        assert!(content(&remote) == pattern(3, 4_096), "old bytes came back");
    });
}

/// A proxy that forwards, but holds what the second connection (the first rail) sends after its
/// hello until it is released, however its near end fares.
async fn holding(to: String, released: watch::Receiver<bool>, held: watch::Sender<u64>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let addr = listener.local_addr().expect("bound").to_string();
    let held = Rc::new(held);
    spawn_local(async move {
        let mut number = 0;
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&to).await.expect("loopback");
            let (mut near_in, mut near_out) = near.into_split();
            let (mut far_in, mut far_out) = far.into_split();
            let (mut released, held) = (released.clone(), Rc::clone(&held));
            let is_held = number == 1;
            number += 1;
            spawn_local(async move { tokio::io::copy(&mut far_in, &mut near_out).await });
            spawn_local(async move {
                let mut room = vec![0; 64 * 1024];
                let mut kept = Vec::new();
                let mut is_first = true;
                while let Ok(read) = near_in.read(&mut room).await {
                    if read == 0 {
                        break;
                    }
                    if is_held && !is_first {
                        kept.extend_from_slice(&room[..read]);
                        held.send_replace(kept.len() as u64);
                    } else if far_out.write_all(&room[..read]).await.is_err() {
                        return;
                    }
                    is_first = false;
                }
                if is_held {
                    let _ = released.wait_for(|released| *released).await;
                    // The far end may have been closed, as it should.
                    let _ = far_out.write_all(&kept).await;
                    held.send_replace(u64::MAX);
                }
            });
        }
    });
    addr
}

/// Two processes live at once behind one address, as while one takes over from the other: what is
/// known of the one is never said to the other.
#[test]
fn rails_to_a_former_life_carry_nothing_of_the_present_one() {
    run(async {
        let (old, new) = (served(2).await, served(3).await);
        // The same registration number and epoch in both.
        let (of_old, _) = buffer(&old.endpoint, 65_536, 1);
        let (of_new, _) = buffer(&new.endpoint, 65_536, 2);
        let mut few = options(1);
        few.lanes = 2;
        let here = Endpoint::new(few);
        let (local, _) = buffer(&here, 65_536, 3);
        let (lead, to) = watch::channel(old.addr.clone());
        let (cut, cuts) = watch::channel(0);
        let addr = leading(to, cuts).await;
        let peer = here.open(&addr).await.expect("it listens");
        let range = [whole(&local, &of_old)];
        let done = here.transfer(peer, Direction::Write, &range, soon()).await;
        done.expect("done");
        of_old.copy_in(0, &pattern(1, 65_536)).expect("in range");
        lead.send(new.addr.clone()).expect("it is led");
        // One rail breaks and comes to the new process; the other one still has the old.
        cut.send(2).expect("it is cut");
        while here
            .transfer(peer, Direction::Read, &range, soon())
            .await
            .is_ok()
        {}
        local.copy_in(0, &pattern(3, 65_536)).expect("in range");
        let range = [whole(&local, &of_new)];
        for _ in 0..20 {
            let done = here.transfer(peer, Direction::Write, &range, soon()).await;
            done.expect("it is known by now");
        }
        assert!(content(&of_new) == pattern(3, 65_536));
        assert!(content(&of_old) == pattern(1, 65_536));
    });
}

/// A proxy that leads new connections where it is told, and cuts the one that it is told.
async fn leading(to: watch::Receiver<String>, cuts: watch::Receiver<u32>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let addr = listener.local_addr().expect("bound").to_string();
    spawn_local(async move {
        let mut number = 0;
        while let Ok((mut near, _)) = listener.accept().await {
            let to = to.borrow().clone();
            let mut far = TcpStream::connect(&to).await.expect("loopback");
            number += 1;
            let (own, mut cuts) = (number, cuts.clone());
            spawn_local(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = cuts.wait_for(|cut| *cut == own) => {}
                }
            });
        }
    });
    addr
}

#[test]
fn a_peer_that_never_answers_holds_up_no_other() {
    run(async {
        let there = served(2).await;
        let (remote, _) = buffer(&there.endpoint, MIB, 1);
        let here = Endpoint::new(options(1));
        let (local, _) = buffer(&here, MIB, 2);
        // The kernel accepts; nobody says anything.
        let mute = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let addr = mute.local_addr().expect("bound").to_string();
        let (ended, mut has_ended) = tokio::sync::oneshot::channel();
        let opening = here.clone();
        spawn_local(async move { ended.send(opening.open(&addr).await) });
        let peer = here.open(&there.addr).await.expect("it listens");
        for _ in 0..100 {
            let range = [whole(&local, &remote)];
            let done = here.transfer(peer, Direction::Write, &range, soon()).await;
            done.expect("done");
        }
        assert!(has_ended.try_recv().is_err(), "it is still waited for");
    });
}

#[test]
fn a_dead_peer_is_not_asked_again_at_once() {
    run(async {
        let there = served(2).await;
        let here = Endpoint::new(options(1));
        let peer = here.open(&there.addr).await.expect("it listens");
        let addr = there.addr.clone();
        drop(there);
        while TcpStream::connect(&addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
        let (mut tried, mut rested) = (0, 0);
        for _ in 0..200 {
            match here.refresh(peer).await {
                Err(CallError::Resting { again_ms, .. }) => {
                    assert!(again_ms <= 1_000);
                    rested += 1;
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    tried += 1;
                }
                Ok(()) => panic!("nobody is there"),
            }
        }
        assert!(tried <= 3 && rested >= 197, "{tried} tries, {rested} rests");
    });
}

#[test]
fn a_peer_whose_rails_all_fail_says_so() {
    run(async {
        let there = served(2).await;
        let (remote, _) = buffer(&there.endpoint, MIB, 1);
        let here = Endpoint::new(options(1));
        let (local, key) = buffer(&here, MIB, 2);
        let peer = here.open(&there.addr).await.expect("it listens");
        let range = [whole(&local, &remote)];
        drop(there);
        let failed = here.transfer(peer, Direction::Write, &range, soon()).await;
        let failed = failed.expect_err("nobody is there");
        let is_of_rails = matches!(
            failed,
            TransferFailed::Range {
                failure: Failure::RailsFailed { .. },
                ..
            }
        );
        assert!(is_of_rails && failed.is_retryable(), "{failed}");
        here.unregister(key).await.expect("nothing holds it");
        // Nothing is wanted of it any more, so nobody goes on connecting.
        while here.0.shared.look(|state| {
            let peers = state.peers.values();
            let mut lines = peers.flat_map(|peer| &peer.links);
            lines.any(|link| !link.line.borrow().is_empty())
        }) {
            tokio::task::yield_now().await;
        }
    });
}
