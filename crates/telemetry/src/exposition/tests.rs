//! The reader refuses what a scraper refuses.

use super::*;

const GOOD: &str = "# HELP a_total Words.\n# TYPE a_total counter\na_total{k=\"x\"} 1\n";

fn refused(page: &str, what: &str) {
    let error = parse(page).expect_err(page);
    assert!(error.what.contains(what), "{error}\n{page}");
}

#[test]
fn reads_escapes() {
    let page = "# HELP g One\\\\two\\nthree \"four\".\n# TYPE g gauge\n\
                g{a=\"q\\\"b\\\\n\\n\",b=\"zürich, {x}=\"} 12.5\n";
    let families = parse(page).expect("a good page");
    assert_eq!(families[0].help, "One\\two\nthree \"four\".");
    assert_eq!(families[0].samples[0].label("a"), Some("q\"b\\n\n"));
    assert_eq!(families[0].samples[0].label("b"), Some("zürich, {x}="));
    assert_eq!(value(&families, "g", &[("b", "zürich, {x}=")]), Some(12.5));
    assert_eq!(value(&families, "g", &[("b", "other")]), None);
}

#[test]
fn refuses_a_family_told_twice() {
    parse(GOOD).expect("a good page");
    refused(&format!("{GOOD}{GOOD}"), "second HELP");
    refused(
        "# HELP a x\n# TYPE a gauge\n# TYPE a gauge\na 1\n",
        "second TYPE",
    );
    refused("# HELP a x\n# TYPE b gauge\na 1\n", "does not follow");
}

#[test]
fn refuses_samples_in_the_wrong_place() {
    refused("a 1\n", "before any HELP");
    refused("# HELP a x\na 1\n", "does not belong");
    refused("# HELP a x\n# TYPE a gauge\nb 1\n", "does not belong");
    refused("# HELP a x\n# TYPE a gauge\n# HELP b x\n", "has no sample");
    refused(
        "# HELP a x\n# TYPE a gauge\na{k=\"x\",l=\"y\"} 1\na{l=\"y\",k=\"x\"} 2\n",
        "twice",
    );
    refused(
        "# HELP a x\n# TYPE a gauge\na{k=\"x\",k=\"y\"} 1\n",
        "label twice",
    );
}

#[test]
fn refuses_broken_lines() {
    let head = "# HELP a x\n# TYPE a gauge\n";
    refused(&format!("{head}a{{k=\"x\\q\"}} 1\n"), "not an escape");
    refused(&format!("{head}a{{k=\"x\"y\"}} 1\n"), "commas");
    refused(&format!("{head}a{{k=\"x\n"), "no end");
    refused(&format!("{head}a{{9=\"x\"}} 1\n"), "name of a label");
    refused(&format!("{head}a{{k=x}} 1\n"), "quoted");
    refused(&format!("{head}a  1\n"), "not a number");
    refused(&format!("{head}a 1 1700000000\n"), "not a number");
    refused(&format!("{head}a -1\n"), "is -1");
    refused(&format!("{head}a inf\n"), "not a number");
    refused(&format!("{head}\n"), "neither");
    refused("# HELP a x\n# TYPE a gauge\na 1", "cut");
    refused("# HELP 9a x\n# TYPE 9a gauge\n9a 1\n", "not a name");
}

#[test]
fn refuses_histograms_that_do_not_add_up() {
    let head = "# HELP h x\n# TYPE h histogram\n";
    let page = |buckets: &str| format!("{head}{buckets}");
    parse(&page(
        "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n",
    ))
    .expect("a good histogram");
    refused(
        &page("h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 3\nh_count 1\n"),
        "rise",
    );
    refused(
        &page("h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n"),
        "last bucket",
    );
    refused(
        &page("h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n"),
        "last bucket",
    );
    refused(&page("h_bucket{le=\"+Inf\"} 1\nh_sum 1\n"), "no count");
    refused(&page("h_bucket 1\nh_sum 1\nh_count 1\n"), "does not belong");
}
