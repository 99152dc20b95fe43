#define _GNU_SOURCE /* clock_gettime */
#include "team.h"

#include <time.h>

static const int64_t poll_ns = 100000000; /* polling the interrupt takes the GIL */

void team_begin(Team *team, const int *devices, int count)
{
    pthread_condattr_t attributes;
    *team = (Team){.count = count, .failed = -1};
    for (int member = 0; member < count; ++member) {
        team->members[member].device = devices[member];
    }
    pthread_mutex_init(&team->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&team->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

void team_end(Team *team)
{
    pthread_cond_destroy(&team->changed);
    pthread_mutex_destroy(&team->mutex);
}

/* ------------------------------------------------------------------ conditions, under the lock */

typedef struct {
    Team *team;
    int member;
    TeamCounter counter;
    int64_t count;
} Wait;

static bool all_have_offered(const Wait *wait)
{
    const Team *const team = wait->team;
    bool all = true;
    for (int member = 0; member < team->count; ++member) {
        all = all && team->members[member].offer;
    }
    return all || team->independent || team->failed >= 0;
}

static bool others_have_reached(const Wait *wait)
{
    const Team *const team = wait->team;
    bool all = true;
    for (int member = 0; member < team->count; ++member) {
        all = all && (member == wait->member ||
                      team->members[member].counts[wait->counter] >= wait->count);
    }
    return all || team->failed >= 0;
}

static bool all_have_finished(const Wait *wait)
{
    const Team *const team = wait->team;
    bool all = true;
    for (int member = 0; member < team->count; ++member) {
        all = all && team->members[member].finished;
    }
    return all || team->independent;
}

static struct timespec from_now(int64_t ns)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    const int64_t sum = time.tv_nsec + ns;
    time.tv_sec += (time_t)(sum / 1000000000);
    time.tv_nsec = (long)(sum % 1000000000);
    return time;
}

/* Waits for the condition and returns whether the interrupt was raised. Unless `patient`, an
 * interrupt ends the wait. The lock is released while the interrupt is polled. */
static bool wait_until(bool (*is_over)(const Wait *), const Wait *wait, const Interrupt *interrupt,
                       bool patient)
{
    Team *const team = wait->team;
    bool raised = false;
    while (!is_over(wait) && (patient || !raised)) {
        const struct timespec until = from_now(poll_ns);
        int error = 0;
        while (!is_over(wait) && error == 0) {
            error = pthread_cond_timedwait(&team->changed, &team->mutex, &until);
        }
        if (error != 0) {
            pthread_mutex_unlock(&team->mutex);
            raised = interrupt_raised(interrupt);
            pthread_mutex_lock(&team->mutex);
        }
    }
    return raised;
}

/* The status of a finished wait. */
static Status outcome(const Team *team, bool raised)
{
    return team->failed >= 0 ? team->failure
           : raised          ? status_error(STATUS_INTERRUPTED, "interrupted")
                             : status_ok();
}

/* ------------------------------------------------------------------ calls of the members */

void team_work_independently(Team *team)
{
    pthread_mutex_lock(&team->mutex);
    team->independent = true;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->mutex);
}

Status team_synchronize(Team *team, int member, const void *offer, const Interrupt *interrupt,
                        bool *together)
{
    const Wait wait = {.team = team, .member = member};
    pthread_mutex_lock(&team->mutex);
    team->members[member].offer = offer;
    pthread_cond_broadcast(&team->changed);
    const bool raised = wait_until(all_have_offered, &wait, interrupt, false);
    const Status status = outcome(team, raised);
    /* `independent` is set before the last member can get here, or never: all members see the
     * same. */
    *together = !team->independent;
    pthread_mutex_unlock(&team->mutex);
    return status;
}

void team_set_progress(Team *team, int member, TeamCounter counter, int64_t count)
{
    pthread_mutex_lock(&team->mutex);
    team->members[member].counts[counter] = count;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->mutex);
}

Status team_wait(Team *team, int member, TeamCounter counter, int64_t count,
                 const Interrupt *interrupt)
{
    const Wait wait = {team, member, counter, count};
    pthread_mutex_lock(&team->mutex);
    const bool raised = wait_until(others_have_reached, &wait, interrupt, false);
    const Status status = outcome(team, raised);
    pthread_mutex_unlock(&team->mutex);
    return status;
}

void team_fail(Team *team, int member, const Status *status)
{
    pthread_mutex_lock(&team->mutex);
    if (team->failed < 0) {
        team->failed = member;
        team->failure = *status;
    }
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->mutex);
}

void team_finish(Team *team, int member, const Interrupt *interrupt)
{
    const Wait wait = {.team = team, .member = member};
    pthread_mutex_lock(&team->mutex);
    team->members[member].finished = true;
    pthread_cond_broadcast(&team->changed);
    wait_until(all_have_finished, &wait, interrupt, true);
    pthread_mutex_unlock(&team->mutex);
}

void team_leave(Team *team, int member, const Status *status)
{
    if (status->code != STATUS_OK) {
        team_fail(team, member, status);
    }
    pthread_mutex_lock(&team->mutex);
    team->independent = team->independent || !team->members[member].offer;
    team->members[member].finished = true;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->mutex);
}
