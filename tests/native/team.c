/* Checks team.c, the threads of a call on several GPUs, without Python, so that sanitizers can
 * watch. Members exchange panels through memory that has no other lock.
 *
 *   team                  all checks
 *   team --planted NAME   with a bug in a member, which ThreadSanitizer should find:
 *       early    reads panels before the other members have stored them
 *       over     overwrites a panel before the other members have read the previous one */
#define _GNU_SOURCE /* alarm */
#include "../../csrc/runtime/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMBERS = 4, PANELS = 200 };

static const char *planted = "";
static const int devices[MEMBERS] = {0, 1, 2, 3};

static bool plants(const char *name)
{
    return strcmp(planted, name) == 0;
}

static _Noreturn void give_up(const char *what)
{
    printf("wrong: %s\n", what);
    exit(1);
}

static void expect(bool right, const char *what)
{
    if (!right) {
        give_up(what);
    }
}

typedef struct {
    Team *team;
    int number;
    int asked; /* how often it was asked whether to stop */
    Status status;
    int slot; /* offered to the others; holds every panel in turn */
} Member;

static bool stop_at_once(void *context)
{
    ++((Member *)context)->asked;
    return true;
}

static void run_all(Team *team, void *(*body)(void *), Member members[MEMBERS])
{
    pthread_t threads[MEMBERS];
    team_begin(team, devices, MEMBERS);
    for (int index = 0; index < MEMBERS; ++index) {
        members[index] = (Member){.team = team, .number = index};
        expect(pthread_create(&threads[index], NULL, body, &members[index]) == 0, "no thread");
    }
    for (int index = 0; index < MEMBERS; ++index) {
        pthread_join(threads[index], NULL);
    }
    team_end(team);
}

/* ------------------------------------------------------------------ panels */

static Status exchange(Member *member, int number, int64_t *sum)
{
    Team *const team = member->team;
    Status status =
        plants("over") ? status_ok() : team_wait(team, member->number, TEAM_COPIED, number, NULL);
    if (status.code == STATUS_OK) {
        member->slot = number * MEMBERS + member->number;
        team_set_progress(team, member->number, TEAM_LOADED, number + 1);
        status = plants("early") ? status
                                 : team_wait(team, member->number, TEAM_LOADED, number + 1, NULL);
    }
    for (int other = 0; other < MEMBERS && status.code == STATUS_OK; ++other) {
        *sum += *(const int *)team->members[other].offer;
    }
    team_set_progress(team, member->number, TEAM_COPIED, number + 1);
    return status;
}

static void *hand_panels_round(void *argument)
{
    Member *const member = argument;
    bool together;
    int64_t sum = 0;
    member->status = team_synchronize(member->team, member->number, &member->slot, NULL, &together);
    expect(member->status.code == STATUS_OK && together, "all meet");
    for (int number = 0; number < PANELS && member->status.code == STATUS_OK; ++number) {
        member->status = exchange(member, number, &sum);
    }
    team_finish(member->team, member->number, NULL);
    member->slot = 0;
    team_leave(member->team, member->number, &member->status);
    expect(sum == (int64_t)PANELS * MEMBERS * (PANELS * MEMBERS - 1) / 2, "every panel, once");
    return NULL;
}

/* ------------------------------------------------------------------ failures */

/* The last member fails; the others wait for a panel that it never stores. */
static void *wait_for_one_that_fails(void *argument)
{
    Member *const member = argument;
    bool together;
    member->status = team_synchronize(member->team, member->number, &member->slot, NULL, &together);
    if (member->status.code == STATUS_OK) {
        member->status = member->number == MEMBERS - 1
                             ? status_error(STATUS_DEVICE, "the first")
                             : team_wait(member->team, member->number, TEAM_LOADED, 1, NULL);
        if (member->status.code != STATUS_OK) {
            team_fail(member->team, member->number, &member->status);
        }
    }
    team_finish(member->team, member->number, NULL);
    const Status later = status_error(STATUS_OUT_OF_MEMORY, "a later one");
    team_leave(member->team, member->number, &later);
    return NULL;
}

/* The last member never arrives. */
static void *wait_to_meet(void *argument)
{
    Member *const member = argument;
    bool together = false;
    member->status = status_ok();
    if (member->number < MEMBERS - 1) {
        member->status =
            team_synchronize(member->team, member->number, &member->slot, NULL, &together);
        team_finish(member->team, member->number, NULL);
    }
    expect(!together, "nobody waits for who does not come");
    team_leave(member->team, member->number, &member->status);
    return NULL;
}

/* A signal arrives while the first member waits; it stops, and so do the others. */
static void *wait_until_interrupted(void *argument)
{
    Member *const member = argument;
    const Interrupt interrupt = {stop_at_once, member};
    bool together;
    member->status = team_synchronize(member->team, member->number, &member->slot, NULL, &together);
    if (member->status.code == STATUS_OK) {
        member->status = team_wait(member->team, member->number, TEAM_LOADED, 1,
                                   member->number == 0 ? &interrupt : NULL);
    }
    team_fail(member->team, member->number, &member->status);
    team_finish(member->team, member->number, NULL);
    team_leave(member->team, member->number, &member->status);
    return NULL;
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "--planted") == 0) {
        planted = arguments[2];
    }
    alarm(100); /* in case a wait never ends */
    Team team;
    Member members[MEMBERS];
    run_all(&team, hand_panels_round, members);
    expect(team.failed < 0, "no failure");
    for (int round = 0; round < 50; ++round) {
        run_all(&team, wait_for_one_that_fails, members);
        expect(team.failed == MEMBERS - 1 && strcmp(team.failure.message, "the first") == 0,
               "the first failure");
        for (int index = 0; index < MEMBERS; ++index) {
            expect(members[index].status.code == STATUS_DEVICE, "the first failure is everybody's");
        }
        run_all(&team, wait_to_meet, members);
        expect(team.failed < 0, "to stay apart is no failure");
    }
    run_all(&team, wait_until_interrupted, members);
    expect(team.failed == 0 && team.failure.code == STATUS_INTERRUPTED && members[0].asked > 0,
           "interrupted");
    printf("members of a team: right\n");
    return 0;
}
