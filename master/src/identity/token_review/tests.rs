//! The desk and the file together, against a stand-in of the review, on paused time.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use larder_telemetry::{Component, exposition};
use larder_types::{AgentName, TenantId};
use serde_json::json;
use tokio::sync::mpsc::error::TryRecvError;

use super::*;

/// A review that the test answers by hand.
struct Asked {
    token: String,
    audience: String,
    answer: oneshot::Sender<Result<Option<Account>, ReviewError>>,
}

struct StandIn(mpsc::Sender<Asked>);

impl Review for StandIn {
    async fn review(
        &self,
        token: String,
        audience: String,
    ) -> Result<Option<Account>, ReviewError> {
        let (reply, answer) = oneshot::channel();
        let asked = Asked {
            token,
            audience,
            answer: reply,
        };
        self.0.send(asked).await.map_err(|_| ReviewError::Gone)?;
        answer.await.unwrap_or(Err(ReviewError::Gone))
    }
}

struct Bench {
    identity: Arc<ReviewedTokens>,
    asked: mpsc::Receiver<Asked>,
    registry: Registry,
    path: PathBuf,
}

/// Subjects with these tenants, each under the account of its name, and the roles.
fn subjects(tenants: &[&str]) -> String {
    let role = |role: &str, name: &str| json!({ "principal": role, "service_account": name });
    let mut entries = vec![
        role("AgentOfNode", "p/agent"),
        role("Operator", "p/operator"),
    ];
    entries.extend(tenants.iter().map(|tenant| {
        json!({ "principal": { "Tenant": tenant }, "service_account": format!("p/{tenant}") })
    }));
    json!({ "audience": "larder", "subjects": entries }).to_string()
}

/// A token that says it belongs to `p/<name>`; `number` tells tokens of one account apart.
fn token(name: &str, number: u32) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let payload = json!({
        "aud": ["larder"], "jti": number, "sub": format!("system:serviceaccount:p:{name}"),
    });
    format!(
        "{}.{}.{}",
        part("{}"),
        part(&payload.to_string()),
        part("s")
    )
}

fn account(name: &str) -> Account {
    Account {
        name: format!("p/{name}"),
        node: Some("node-1".to_owned()),
    }
}

fn tenant(name: &str) -> Principal {
    Principal::Tenant(TenantId::new(name).expect("valid"))
}

impl Bench {
    async fn new(name: &str) -> Self {
        let file = format!("larder-subjects-{name}-{}.json", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, subjects(&["a", "b"])).expect("written");
        let registry = Registry::new(Component::Master);
        let subjects = SubjectsFile::load(&path, registry.clone()).await;
        let (reviews, asked) = mpsc::channel(64);
        let subjects = subjects.expect("valid");
        let identity = ReviewedTokens::new(subjects, StandIn(reviews), &registry);
        Self {
            identity: Arc::new(identity),
            asked,
            registry,
            path,
        }
    }

    async fn prove(&self, token: &str) -> Result<Principal, IdentityError> {
        self.identity.prove(token.as_bytes()).await
    }

    /// Proves a token whose review ends so.
    async fn reviewed(
        &mut self,
        token: &str,
        answer: Result<Option<Account>, ReviewError>,
    ) -> Result<Principal, IdentityError> {
        let identity = Arc::clone(&self.identity);
        let proof = identity.prove(token.as_bytes());
        let review = async {
            let asked = self.next_review().await;
            assert_eq!(
                (asked.token.as_str(), asked.audience.as_str()),
                (token, "larder")
            );
            asked.answer.send(answer).expect("waited for");
        };
        tokio::join!(proof, review).0
    }

    /// The next review. One that nobody asks for fails the test instead of hanging it: time passes
    /// by itself once everybody waits.
    async fn next_review(&mut self) -> Asked {
        let next = timeout(Duration::from_secs(3_600), self.asked.recv()).await;
        next.expect("nobody asks for a review").expect("a review")
    }

    /// Lets every task run as far as it can, without time passing.
    async fn settle() {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
    }

    fn counted(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let page = exposition::parse(&self.registry.render()).expect("a page");
        exposition::value(&page, name, labels).unwrap_or(0.0)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

fn is_unknown(result: &Result<Principal, IdentityError>) -> bool {
    matches!(result, Err(error @ IdentityError::UnknownAccount { .. }) if !error.is_retryable())
}

#[tokio::test(start_paused = true)]
async fn a_review_counts_for_ten_minutes_and_a_denial_for_ten_seconds() {
    let mut bench = Bench::new("cache").await;
    let a = token("a", 1);
    let proven = bench.reviewed(&a, Ok(Some(account("a")))).await;
    assert_eq!(proven.expect("proven"), tenant("a"));
    assert_eq!(
        bench.prove(&format!("{a}\n")).await.expect("known"),
        tenant("a")
    );
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(bench.prove(&a).await.expect("known"), tenant("a"));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(
        is_unknown(&bench.reviewed(&a, Ok(None)).await),
        "asked again"
    );
    assert!(is_unknown(&bench.prove(&a).await), "not asked again");
    tokio::time::advance(Duration::from_secs(10)).await;
    let proven = bench.reviewed(&a, Ok(Some(account("a")))).await;
    assert_eq!(proven.expect("proven"), tenant("a"));
    let reviews = |result| {
        let labels = [("result", result)];
        bench.counted("larder_master_token_reviews_total", &labels)
    };
    assert_eq!((reviews("proven"), reviews("denied")), (2.0, 1.0));
    assert_eq!(
        bench.counted("larder_master_token_cache_hits_total", &[]),
        3.0
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_named_by_its_node_and_a_review_of_another_account_proves_nothing() {
    let mut bench = Bench::new("agent").await;
    let proven = bench
        .reviewed(&token("agent", 1), Ok(Some(account("agent"))))
        .await;
    let node = Principal::Agent(AgentName::new("node-1").expect("valid"));
    assert_eq!(proven.expect("proven"), node);
    for (number, name) in [(2, None), (3, Some("Not A Node")), (4, Some("../x"))] {
        let account = Account {
            node: name.map(str::to_owned),
            ..account("agent")
        };
        let result = bench
            .reviewed(&token("agent", number), Ok(Some(account)))
            .await;
        assert!(is_unknown(&result), "{name:?}");
    }
    let other = bench
        .reviewed(&token("a", 5), Ok(Some(account("operator"))))
        .await;
    assert!(is_unknown(&other));
}

#[tokio::test(start_paused = true)]
async fn one_token_is_asked_about_once_however_many_show_it() {
    let mut bench = Bench::new("flight").await;
    let a = token("a", 1);
    let proofs: Vec<_> = (0..20)
        .map(|_| {
            let (identity, a) = (Arc::clone(&bench.identity), a.clone());
            tokio::spawn(async move { identity.prove(a.as_bytes()).await })
        })
        .collect();
    let first = bench.next_review().await;
    Bench::settle().await;
    assert!(matches!(bench.asked.try_recv(), Err(TryRecvError::Empty)));
    first
        .answer
        .send(Ok(Some(account("a"))))
        .expect("waited for");
    for proof in proofs {
        assert_eq!(proof.await.expect("no panic").expect("proven"), tenant("a"));
    }
    assert!(matches!(bench.asked.try_recv(), Err(TryRecvError::Empty)));
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_known_tokens_go_on_and_others_may_try_again() {
    let mut bench = Bench::new("away").await;
    let (a, b) = (token("a", 1), token("b", 1));
    let proven = bench.reviewed(&a, Ok(Some(account("a")))).await;
    assert_eq!(proven.expect("proven"), tenant("a"));
    let away = || ReviewError::ApiServer {
        source: Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
    };
    for _ in 0..3 {
        let refused = bench.reviewed(&b, Err(away())).await.expect_err("away");
        assert!(refused.is_retryable(), "{refused}");
    }
    assert_eq!(bench.prove(&a).await.expect("known"), tenant("a"));
    // One that hangs is given up.
    let refused = bench.prove(&b).await.expect_err("no answer");
    assert!(refused.is_retryable(), "{refused}");
    drop(bench.next_review().await);
    // Whoever asks before the desk has heard of this end waits for the same review.
    Bench::settle().await;
    let proven = bench.reviewed(&b, Ok(Some(account("b")))).await;
    assert_eq!(proven.expect("it is back"), tenant("b"));
}

#[tokio::test(start_paused = true)]
async fn garbage_and_strangers_reach_nobody() {
    let mut bench = Bench::new("garbage").await;
    for number in 0..2_000 {
        assert!(is_unknown(&bench.prove(&format!("secret-{number}")).await));
        assert!(is_unknown(&bench.prove(&token("stranger", number)).await));
    }
    let other = token("a", 1);
    let payload = json!({ "aud": "vault", "sub": "system:serviceaccount:p:a" });
    let middle = URL_SAFE_NO_PAD.encode(payload.to_string());
    let mut parts: Vec<&str> = other.split('.').collect();
    parts[1] = &middle;
    assert!(
        is_unknown(&bench.prove(&parts.join(".")).await),
        "another audience"
    );
    assert!(matches!(bench.asked.try_recv(), Err(TryRecvError::Empty)));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_made_up_tokens_is_slow_and_leaves_the_others_alone() {
    const FLOOD: u32 = 1_000;
    let mut bench = Bench::new("flood").await;
    let a = token("a", 1);
    let proven = bench.reviewed(&a, Ok(Some(account("a")))).await;
    assert_eq!(proven.expect("proven"), tenant("a"));
    let mut flood = tokio::task::JoinSet::new();
    for number in 0..FLOOD {
        let identity = Arc::clone(&bench.identity);
        flood.spawn(async move { identity.prove(token("b", number).as_bytes()).await });
    }
    let mut asked = Vec::new();
    for _ in 0..16 {
        asked.push(bench.next_review().await);
    }
    for _ in 0..100 {
        Bench::settle().await;
    }
    assert!(
        matches!(bench.asked.try_recv(), Err(TryRecvError::Empty)),
        "16 at a time"
    );
    assert_eq!(bench.prove(&a).await.expect("known"), tenant("a"));
    for one in asked {
        one.answer.send(Ok(None)).expect("waited for");
    }
    Bench::settle().await;
    assert!(
        matches!(bench.asked.try_recv(), Err(TryRecvError::Empty)),
        "a pause first"
    );
    // From here on time passes by itself whenever nobody has anything to do.
    let mut reviews = 16;
    let (mut denied, mut crowded) = (0, 0);
    loop {
        tokio::select! {
            biased;
            Some(asked) = bench.asked.recv() => {
                reviews += 1;
                drop(asked.answer.send(Ok(None)));
            }
            ended = flood.join_next() => match ended {
                Some(ended) => match ended.expect("no panic") {
                    Err(error) if error.is_retryable() => crowded += 1,
                    result => denied += u32::from(is_unknown(&result)),
                },
                None => break,
            }
        }
    }
    assert_eq!(denied + crowded, FLOOD);
    assert!(
        reviews <= 16 + 512 && crowded >= FLOOD - 16 - 512,
        "{reviews}, {crowded}"
    );
    assert_eq!(bench.prove(&a).await.expect("known"), tenant("a"));
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_the_file_is_refused_at_once_and_a_broken_file_changes_nothing() {
    let mut bench = Bench::new("change").await;
    let (a, b) = (token("a", 1), token("b", 1));
    for (text, name) in [(&a, "a"), (&b, "b")] {
        let proven = bench.reviewed(text, Ok(Some(account(name)))).await;
        assert_eq!(proven.expect("proven"), tenant(name));
    }
    // As kubelet does it: a new file, and a name that points to it.
    let other = bench.path.with_extension("new");
    std::fs::write(&other, subjects(&["b", "c"])).expect("written");
    std::fs::rename(&other, &bench.path).expect("exchanged");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(is_unknown(&bench.prove(&a).await));
    assert_eq!(bench.prove(&b).await.expect("known"), tenant("b"));
    let proven = bench.reviewed(&token("c", 1), Ok(Some(account("c")))).await;
    assert_eq!(proven.expect("new"), tenant("c"));

    std::fs::write(&bench.path, "{\"audience\": ").expect("written");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(bench.prove(&b).await.expect("known"), tenant("b"));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(bench.prove(&b).await.expect("known"), tenant("b"));
    let failures = "larder_master_subjects_failures_total";
    assert_eq!(bench.counted(failures, &[]), 1.0, "said once");

    std::fs::write(&bench.path, subjects(&["a", "c"])).expect("written");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(is_unknown(&bench.prove(&b).await));
    assert_eq!(bench.prove(&a).await.expect("still reviewed"), tenant("a"));
}
