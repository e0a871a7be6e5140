//! The peer's calls and what is here for each: `docs/calls.md` is written from this table.

use std::fmt::Write as _;

use larder_types::ErrorCode;
use larder_wire::Kind;

/// Whether a call is offered.
enum State {
    There,
    /// With what it comes.
    Comes(&'static str),
    /// Why not.
    Not(&'static str),
}

use State::{Comes, Not, There};

struct Call {
    /// The peer's names; batch forms beside the single one.
    theirs: &'static str,
    ours: &'static str,
    state: State,
    /// Codes that it can answer, beside those that every call can.
    codes: &'static [i32],
    note: &'static str,
}

const fn call(
    theirs: &'static str,
    ours: &'static str,
    state: State,
    codes: &'static [i32],
    note: &'static str,
) -> Call {
    Call {
        theirs,
        ours,
        state,
        codes,
        note,
    }
}

const START: &[i32] = &[-200, -600, -705, -706, -1700];
const SSD: &str = "the SSD tier";

const EXISTENCE: &[Call] = &[call(
    "`ExistKey`, `BatchExistKey`",
    "`Exists`",
    There,
    &[],
    "Grants a lease only with `lease`, and once until the next get or put.",
)];

const READ: &[Call] = &[
    call(
        "`GetReplicaList`, `BatchGetReplicaList`",
        "`Get`",
        There,
        &[-703, -704, -710],
        "Grants a lease to the object and its group; the answer says for how long.",
    ),
    call(
        "`GetReplicaListByRegex`",
        "admin `GET /v1/tenants/{id}/objects?pattern=`; `List` by prefix for clients",
        There,
        &[-600],
        "Grants no leases. Linear time, by pages, matched outside the leader.",
    ),
    call(
        "(get_size, descriptors)",
        "`Stat`, `ListStats`",
        There,
        &[-703, -704],
        "Size, version, digest, agents, pin, group, data type; no lease.",
    ),
];

const WRITE: &[Call] = &[
    call(
        "`PutStart`, `BatchPutStart`",
        "`PutStart`",
        There,
        START,
        "`strict` refuses where the peer makes fewer replicas; without it the answer says how many \
         of how many. An ignored preference is reported.",
    ),
    call(
        "`UpsertStart`, `BatchUpsertStart`",
        "`PutStart` with `Upsert`",
        There,
        START,
        "Always copy on write: readers have the former version until the end, and a put that fails \
         leaves it. Both are charged until then.",
    ),
    call(
        "`PutEnd`, `UpsertEnd`, batch forms",
        "`PutEnd`",
        There,
        &[-300, -601, -700],
        "May be repeated. Late ends are -601, those of a former epoch -300.",
    ),
    call(
        "`PutRevoke`, `UpsertRevoke`, batch forms",
        "`PutRevoke`",
        There,
        &[-601, -700],
        "Answered when the agents have erased what was written.",
    ),
    call(
        "(`with_soft_pin`, `with_hard_pin` of a put)",
        "`PutStart`, `Pin`",
        There,
        &[-600, -703, -704, -1700],
        "Pins can be set, changed and taken away at any time; hard ones are bounded per tenant.",
    ),
];

const DELETE: &[Call] = &[
    call(
        "`Remove`, `BatchRemove`",
        "`Remove`",
        There,
        &[-703, -704, -706],
        "-706 only with `if_unleased`, which is the peer's `force` turned round.",
    ),
    call(
        "`RemoveByRegex`",
        "admin `DELETE /v1/tenants/{id}/objects?pattern=`; `RemovePrefix` for clients",
        There,
        &[-600],
        "Skips what is leased with `if_unleased`, and counts it.",
    ),
    call(
        "`RemoveAll`",
        "`RemovePrefix` of nothing",
        There,
        &[],
        "Of the caller's tenant only, a page a call with a count. A whole tenant goes with \
         `DELETE /v1/tenants/{id}`.",
    ),
    call(
        "`BatchReplicaClear`",
        "",
        Not("a move or a drain takes replicas off an agent, and surplus ones are evicted first"),
        &[],
        "",
    ),
    call(
        "`PollRemoveAll`",
        "",
        Not("agents are told what to erase, extent by extent"),
        &[],
        "",
    ),
];

const SEGMENTS: &[Call] = &[
    call(
        "`MountSegment`, `ReMountSegment`",
        "`Mount` of an agent",
        There,
        &[-300, -600],
        "One call with all segments; the same process mounts again without loss. To a pool that \
         has lost its log it then says what it holds, page by page: `Inventory`.",
    ),
    call(
        "`UnmountSegment`",
        "`Unmount` of an agent",
        There,
        &[-101],
        "",
    ),
    call(
        "`GracefulUnmountSegment`",
        "admin `/v1/agents/{name}/drain`, then `Unmount`",
        There,
        &[-600],
        "Moves the objects first, those that are pinned or leased too; without room elsewhere it \
         waits and says so.",
    ),
    call(
        "`QuerySegmentStatus`, `QuerySegmentStatusById`",
        "admin `GET /v1/agents`",
        There,
        &[],
        "",
    ),
    call(
        "`MountNoFSegment` and the other NoF calls",
        "",
        Not("no NVMe-over-fabrics tier"),
        &[],
        "",
    ),
];

const CLIENTS: &[Call] = &[
    call(
        "`Ping`",
        "`Heartbeat` of an agent; a client's session is its connection",
        There,
        &[-103],
        "A broken connection gives up its pending puts at once.",
    ),
    call(
        "`BatchQueryIp`",
        "every grant names its agents with their addresses",
        There,
        &[],
        "",
    ),
    call(
        "`ServiceReady`",
        "the hello; admin `GET /readyz`",
        There,
        &[],
        "",
    ),
    call("`GetFsdir`, `GetStorageConfig`", "", Comes(SSD), &[], ""),
];

const TIERS: &[Call] = &[call(
    "`MountLocalDiskSegment`, `UnmountLocalDiskSegment`, `OffloadObjectHeartbeat`, \
     `ReportSsdCapacity`, `NotifyOffloadSuccess`, `PromotionObjectHeartbeat`, \
     `PromotionAllocStart`, `NotifyPromotionSuccess`, `NotifyPromotionFailure`, \
     `EvictDiskReplica`, `BatchEvictDiskReplica`",
    "",
    Comes(SSD),
    &[],
    "",
)];

const COPIES: &[Call] = &[
    call(
        "`CopyStart`, `CopyEnd`, `CopyRevoke`, `MoveStart`, `MoveEnd`, `MoveRevoke`, \
         `DynamicReplicaCopyStart`, `DynamicReplicaCopyEnd`, `DynamicReplicaCopyRevoke`",
        "",
        Not("agents copy from each other when the master tells them; no client is between"),
        &[],
        "",
    ),
    call(
        "`CreateCopyTask`, `CreateMoveTask`, `QueryTask`",
        "`TaskCreate`, `TaskQuery`",
        There,
        &[-600, -704, -1010, -1400, -1401],
        "Agents are named, not segments. Tasks outlive a change of the leader; a batch's items \
         succeed and fail alone. Why a task failed stands in its status. Administrators list, look \
         at and end those of all tenants: `/v1/tasks`, `/v1/tasks/{task}`.",
    ),
    call(
        "`FetchTasks`, `MarkTaskToComplete`",
        "commands to agents and what they say",
        There,
        &[],
        "Pushed, not polled.",
    ),
];

const QUOTAS: &[Call] = &[
    call(
        "HTTP tenant quotas",
        "`CacheTenant`, `CacheQuota`; admin `/v1/tenants`, `/v1/quotas`; `Usage` for clients",
        There,
        &[-1701, -1702],
        "",
    ),
    call(
        "HTTP drain jobs",
        "admin `PUT`, `DELETE` and `GET /v1/agents/{name}/drain`",
        There,
        &[-600],
        "Part of the replicated state; found by an index of slabs, not by scans.",
    ),
    call(
        "HTTP `get_all_keys`",
        "`List`, `ListStats`",
        There,
        &[],
        "Ordered, by pages.",
    ),
];

/// A page of the admin port: what may be asked of it, where, and what it is about.
struct Page {
    methods: &'static [&'static str],
    path: &'static str,
    about: &'static str,
}

const fn admin(methods: &'static [&'static str], path: &'static str, about: &'static str) -> Page {
    Page {
        methods,
        path,
        about,
    }
}

const ADMIN: &[Page] = &[
    admin(&["GET"], "/metrics", "Metrics, for everybody."),
    admin(
        &["GET"],
        "/healthz",
        "Whether the process answers, for everybody.",
    ),
    admin(
        &["GET"],
        "/readyz",
        "Whether this master leads or stands by, for everybody.",
    ),
    admin(&["GET"], "/v1/status", "The pool in figures."),
    admin(
        &["GET"],
        "/v1/check",
        "What the state contradicts itself in: nothing.",
    ),
    admin(
        &["POST"],
        "/v1/masters/{name}/promote",
        "Make another master the leader, at once. To be asked of the leader.",
    ),
    admin(
        &["GET", "PUT"],
        "/v1/masters",
        "Who votes and, from the leader, who is in sync; say who is to be a master until the next \
         start: `names`. To be set at the leader.",
    ),
    admin(
        &["GET", "POST"],
        "/v1/snapshots",
        "All snapshots that this master's store keeps; take one, of the leader: `name`. Answers \
         202 with where it stands.",
    ),
    admin(
        &["GET", "DELETE"],
        "/v1/snapshots/{name}",
        "Where one stands, `phase` and `reason`, and what it holds; delete it. See \
         [snapshots](snapshots.md).",
    ),
    admin(
        &["GET"],
        "/v1/tenants",
        "All tenants, their policies and what they use.",
    ),
    admin(
        &["PUT", "DELETE"],
        "/v1/tenants/{id}",
        "Make a tenant or replace all of its policy: `access`, `guaranteed_bytes`, `limit_bytes`, \
         `limit_objects`, `limit_pinned_bytes`, `view_bytes`, `borrowing`, `on_exceed`, \
         `cohort`, of which those left out get their defaults (no limit, no guarantee); delete it \
         with all that it holds.",
    ),
    admin(
        &["GET", "DELETE"],
        "/v1/tenants/{id}/objects",
        "List or remove objects: `pattern` (a regular expression), `prefix` (the text itself), \
         `after` (in hex, as `next` is); `if_unleased` leaves what a lease protects. `next` of an \
         answer is `after` of the next call.",
    ),
    admin(
        &["GET"],
        "/v1/tenants/{id}/quota",
        "What the tenant may hold, and what bounds it.",
    ),
    admin(&["GET"], "/v1/quotas", "All quotas that tenants share."),
    admin(
        &["GET", "PUT", "DELETE"],
        "/v1/quotas/{name}",
        "One quota; make it or replace all of it: `guaranteed_bytes`, `limit_bytes`, \
         `limit_objects`, `limit_pinned_bytes`, `borrowing`, `on_exceed`; release its tenants from \
         it.",
    ),
    admin(
        &["GET"],
        "/v1/agents",
        "All agents: addresses, health, labels, what they hold, whether they are drained.",
    ),
    admin(
        &["GET", "PUT", "DELETE"],
        "/v1/agents/{name}/drain",
        "What is left on an agent that is emptied; begin; fill it again.",
    ),
    admin(
        &["PUT"],
        "/v1/agents/{name}/labels",
        "Say where an agent is: `host`, `rack`, `zone`. What is left out is as the agent says.",
    ),
    admin(
        &["GET"],
        "/v1/tasks",
        "Copies and moves that tenants asked for: `tenant`, `open` (true: only those not over), \
         `after`, `limit` (100, at most 1,000).",
    ),
    admin(
        &["GET", "DELETE"],
        "/v1/tasks/{task}",
        "One task; end it. What was copied stays.",
    ),
];

const ADMIN_HEAD: &str = "\
## The admin port

Pages of JSON for the operator and administrators, with `Authorization: Bearer <token>`; the first
three need none. A refusal is `{\"error\": {\"reason\", \"code\", \"message\"}}`, a change that was
done 204 without a body.

| method | page | what |
|---|---|---|
";

const GROUPS: &[(&str, &[Call])] = &[
    ("Existence", EXISTENCE),
    ("Read", READ),
    ("Write", WRITE),
    ("Delete", DELETE),
    ("Segments", SEGMENTS),
    ("Clients", CLIENTS),
    ("SSD tier", TIERS),
    ("Copy, move, tasks", COPIES),
    ("Only over HTTP at the peer", QUOTAS),
];

const HEAD: &str = "\
# Calls

Written from the table in `crates/wire/tests/wire/calls.rs`; its test says how.

Every call of clients is a batch with one result for each item, so single and batch forms share
their checks. Codes have the numbers of Mooncake's `ErrorCode`; beside each stands a typed reason
that says what to do (`crates/types/src/code.rs`). Every call can also answer -601 (the tenant's
access does not allow it), -901 (its deadline passed), -1010 (not leading, starting or full of
work; try again) and -1701 (no such tenant). An empty or too long key does not reach a master: it
is -400 at the client, where the peer answers -600.

";

const TAIL: &str = "\
## What protects an object

| | lasts | eviction | `remove`, upsert | a new leader |
|---|---|---|---|---|
| lease, by a get | 10 s from the last get; a group's members together | skips it | \
refused only with `if_unleased` | \
evicts without it; refuses `if_unleased` until 10 s after it began |
| lease, by a probe with `lease` | 10 s, once until the next get or put | skips it | as above | \
as above |
| soft pin | \
30 min unless the put says (at most 24 h, 1440m for the CLI), from when the object is readable; \
reads do not extend it | \
takes it only when nothing else is left | goes on | counts the whole time anew |
| hard pin | until `Pin` takes it away | skips it | goes on | keeps it |
| bytes in use | until the agent says that nobody holds them | waits | waits | waits |

A put grants no lease. An upsert that says no pin, group or data type (0) keeps those of the object
that it replaces, a soft pin with the time that it has left. Hard-pinned bytes of a tenant are
bounded, pending puts included.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (group, calls) in GROUPS {
        writeln!(
            page,
            "## {group}\n\n| Mooncake | Larder | state | codes | notes |"
        )
        .expect("text");
        page.push_str("|---|---|---|---|---|\n");
        for one in *calls {
            let state = match one.state {
                There => "there".to_owned(),
                Comes(with) => format!("comes with {with}"),
                Not(why) => format!("not offered: {why}"),
            };
            let codes: Vec<String> = one.codes.iter().map(ToString::to_string).collect();
            let Call {
                theirs, ours, note, ..
            } = one;
            let codes = codes.join(" ");
            writeln!(page, "| {theirs} | {ours} | {state} | {codes} | {note} |").expect("text");
        }
        page.push('\n');
    }
    page.push_str(ADMIN_HEAD);
    for one in ADMIN {
        let methods: Vec<String> = one.methods.iter().map(|name| format!("`{name}`")).collect();
        let methods = methods.join(", ");
        writeln!(page, "| {methods} | `{}` | {} |", one.path, one.about).expect("text");
    }
    page.push('\n');
    page + TAIL
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "leaves the page that the table says, so that it can be copied"
)]
fn the_page_of_calls_is_written_from_the_table() {
    let page = page();
    if page != include_str!("../../../../docs/calls.md") {
        let place = concat!(env!("CARGO_TARGET_TMPDIR"), "/calls.md");
        std::fs::write(place, &page).expect("room");
        panic!("docs/calls.md is not what the table says; copy {place} there");
    }
}

#[test]
fn codes_of_the_table_are_codes() {
    let codes = GROUPS
        .iter()
        .flat_map(|(_, calls)| calls.iter())
        .flat_map(|one| one.codes);
    for code in codes {
        assert!(ErrorCode::from_number(*code).is_some(), "{code}");
    }
}

/// Each kind of a client's call stands in the table.
#[test]
fn every_call_of_ours_is_in_the_table() {
    let page = page();
    for kind in Kind::ALL
        .iter()
        .filter(|kind| (16..32).contains(&(**kind as u16)))
    {
        assert!(
            page.contains(&format!("`{}`", kind.name())),
            "{}",
            kind.name()
        );
    }
}

/// Each call of ours that the table names is a kind of frame or a page of the admin port. That a
/// master has these pages and no others, its own tests say.
#[test]
fn every_call_of_the_table_exists() {
    // Custom resources, and a case of a put.
    let others = ["CacheTenant", "CacheQuota", "Upsert"];
    let methods = ["GET", "PUT", "DELETE"];
    let calls = GROUPS.iter().flat_map(|(_, calls)| calls.iter());
    for text in calls.flat_map(|one| quoted(one.ours)) {
        let (method, path) = text.split_once(' ').unwrap_or(("GET", text));
        let exists = if path.starts_with('/') {
            let path = path.split_once('?').map_or(path, |(path, _)| path);
            let page = ADMIN.iter().find(|page| page.path == path);
            page.is_some_and(|page| page.methods.contains(&method))
        } else {
            let is_kind = Kind::ALL.iter().any(|kind| kind.name() == text);
            is_kind || others.contains(&text) || methods.contains(&text)
        };
        assert!(exists, "{text}");
    }
}
