//! What a task does wrong ends that task, or says why it ended the program.

use nom_system_tests::Guest;

#[test]
fn tasks_that_panic_or_find_no_memory_end_alone() {
    let life = Guest::bundle("tests/guest/bundles/contained.toml").run().expect_status(0).expect_no("FAILED");
    let life = life.expect("a wish of task number 1").expect("a second wish").expect("ok a-task-that-panics");
    life.expect("memory allocation of 1099511627776 bytes failed").expect("ok a-task-without-memory");
}

#[test]
fn a_task_that_never_comes_back_is_told_with_its_place() {
    let life = Guest::bundle("tests/guest/bundles/hangs.toml").run().expect_status(101);
    let life = life.expect("about to hang").expect("a task has not come back for 5 s");
    let trace: Vec<&str> = life.serial.lines().filter(|line| line.contains("  #")).collect();
    assert!(trace.iter().any(|line| line.contains("contained::endless")), "{trace:#?}");
}
