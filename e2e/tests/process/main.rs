//! Whole systems as local processes: `larder up` and everything that may happen to it.
//!
//! Needs nothing but the built `larder` program, and Prometheus where a test says so. Each test
//! has a pool of its own and takes it down again.

mod autoscaling;
mod bulk;
mod chaos;
mod death;
mod masters;
mod moves;
mod pages;
mod rig;
mod stripes;
mod transfer;
mod trust;
mod upserts;

use std::process::ExitCode;

use larder_e2e::chaos::Fault;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

fn test(name: &'static str, run: fn() -> anyhow::Result<()>) -> Trial {
    Trial::test(name, move || {
        run().map_err(|error| Failed::from(format!("{error:#}")))
    })
}

/// A test that needs Prometheus. Without it and without a way to fetch it the test is skipped and
/// says why, unless the list in `LARDER_E2E_REQUIRE` holds `prometheus`.
fn prometheus(name: &'static str, run: fn() -> anyhow::Result<()>) -> Trial {
    Trial::ignorable_test(name, move || {
        if let Err(reason) = larder_e2e::prometheus::programs() {
            if is_required("prometheus") {
                return Err(Failed::from(format!("required, but {reason:#}")));
            }
            return Ok(Completion::ignored_with(format!("skipped: {reason:#}")));
        }
        run().map_err(|error| Failed::from(format!("{error:#}")))?;
        Ok(Completion::Completed)
    })
}

/// Whether a need must be met here: `LARDER_E2E_REQUIRE` lists needs, with commas between.
#[expect(
    clippy::disallowed_methods,
    reason = "the configuration of this harness"
)]
fn is_required(need: &str) -> bool {
    let list = std::env::var("LARDER_E2E_REQUIRE").unwrap_or_default();
    list.split(',').any(|one| one.trim() == need)
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Pools of several processes each: side by side they only slow each other down.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    libtest_mimic::run(&arguments, tests()).exit_code()
}

fn tests() -> Vec<Trial> {
    let mut tests = vec![
        test("process_transfer_checks_every_byte", transfer::every_byte),
        test(
            "process_transfer_refuses_another_secret",
            transfer::other_secret,
        ),
        test(
            "process_ten_gib_through_one_gib_at_the_limit",
            bulk::ten_gib,
        ),
        test(
            "process_b01_a_killed_client_gives_its_space_back",
            death::client_killed,
        ),
        test(
            "process_b01_a_client_that_stops_at_any_step_gives_its_space_back",
            death::each_step,
        ),
        test(
            "process_an_agent_killed_costs_its_objects_only",
            death::agent_killed,
        ),
        test(
            "process_drains_and_deaths_fail_no_read",
            moves::no_read_fails,
        ),
        test(
            "process_an_agent_that_returns_gets_its_replicas_again",
            moves::replicas_return,
        ),
        test(
            "process_a_master_killed_keeps_the_pool",
            death::master_killed,
        ),
        test(
            "process_foreign_capabilities_reach_nothing",
            trust::capabilities,
        ),
        test(
            "process_an_object_of_several_slabs_lives_as_any_other",
            stripes::life,
        ),
        test("process_upserts_never_tear_a_read", upserts::no_torn_read),
        test(
            "process_upserts_in_pieces_never_tear_a_read",
            upserts::no_torn_read_of_pieces,
        ),
        test("process_strangers_reach_nothing", trust::strangers),
        test("process_tenants_see_only_their_own", trust::tenants),
        test("process_pages_are_valid_and_name_no_key", pages::metrics),
        test("process_down_leaves_nothing", pages::down_leaves_nothing),
        prometheus(
            "process_the_demand_of_the_sample_is_read_from_a_master",
            autoscaling::demand,
        ),
    ];
    tests.extend(masters_tests());
    tests.extend(chaos_tests());
    tests
}

/// One short injection of each fault that the harness has beside killed and stopped masters.
fn chaos_tests() -> Vec<Trial> {
    vec![
        test(
            "process_chaos_faults_reach_the_programs",
            chaos::faults_reach,
        ),
        test("process_chaos_disk_full", || chaos::once(Fault::DiskFull)),
        test("process_chaos_slow_disk", || chaos::once(Fault::SlowDisk)),
        test("process_chaos_clock", || chaos::once(Fault::Clock)),
        test("process_chaos_power_one", || chaos::once(Fault::PowerOne)),
        test("process_chaos_power_all", || chaos::once(Fault::PowerAll)),
        test("process_chaos_power_all_always", || {
            chaos::once(Fault::PowerAllAlways)
        }),
        test("process_chaos_all_wiped", || chaos::once(Fault::Wiped)),
        test("process_chaos_agent_kill9", || {
            chaos::once(Fault::AgentKill9)
        }),
        test("process_chaos_agent_pause", || {
            chaos::once(Fault::AgentPause)
        }),
        test("process_chaos_switchover", || {
            chaos::once(Fault::Switchover)
        }),
        test("process_chaos_partitions", chaos::partitions),
    ]
}

/// Several masters of which some die, sleep or lose their disk.
fn masters_tests() -> Vec<Trial> {
    vec![
        test(
            "process_masters_a_killed_leader_loses_nothing",
            masters::leader_killed,
        ),
        test(
            "process_masters_a_paused_leader_serves_nothing_stale",
            masters::leader_paused,
        ),
        test(
            "process_masters_all_killed_at_once_lose_nothing",
            masters::all_killed,
        ),
        test(
            "process_masters_a_killed_standby_changes_nothing",
            masters::standby_killed,
        ),
        test(
            "process_masters_a_standby_without_its_disk_joins_anew",
            masters::standby_without_disk,
        ),
        test(
            "process_masters_all_without_their_disks_find_everything_again",
            masters::all_without_disks,
        ),
        test(
            "process_masters_a_lone_one_without_its_disk_finds_everything_again",
            masters::lone_without_disk,
        ),
    ]
}
