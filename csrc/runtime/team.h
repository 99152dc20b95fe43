/* Synchronizes the threads of one call on several GPUs, one thread per GPU: the progress of each,
 * waits for the others, and the first failure. */
#ifndef SGEMM_TEAM_H
#define SGEMM_TEAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../base/interrupt.h"
#include "../base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MOST_GPUS = 64 };

/* Progress counters that other members can wait for. */
typedef enum {
    TEAM_LOADED, /* panels whose own share is loaded */
    TEAM_COPIED, /* panels whose other shares are copied */
    TEAM_COUNTERS
} TeamCounter;

typedef struct {
    int device;
    const void *offer; /* what the others may use after team_synchronize */
    int64_t counts[TEAM_COUNTERS];
    bool finished; /* no longer uses the others' offers */
} TeamMember;

typedef struct Team {
    int count;
    TeamMember members[MOST_GPUS];

    pthread_mutex_t mutex; /* guards the members and the fields below */
    pthread_cond_t changed;
    bool independent; /* some member never calls team_synchronize: no member waits for others */
    int failed;       /* the first member that failed; -1: none */
    Status failure;
} Team;

/* Initializes a team with one member for each of `count` <= MOST_GPUS devices. */
void team_begin(Team *team, const int *devices, int count);
void team_end(Team *team);

/* Tells the members not to wait for each other, because some have no thread. The caller must call
 * this before it does their work in its own thread. */
void team_work_independently(Team *team);

/* Makes `offer` available to the other members and waits until all members have called this.
 * *together, the same for every member, is false if some member never will. Fails with the first
 * failure of any member. */
Status team_synchronize(Team *team, int member, const void *offer, const Interrupt *interrupt,
                        bool *together);

/* Sets a member's progress counter. */
void team_set_progress(Team *team, int member, TeamCounter counter, int64_t count);

/* Waits until the counters of all other members have reached `count`. Fails with the first failure
 * of any member, or with STATUS_INTERRUPTED. */
Status team_wait(Team *team, int member, TeamCounter counter, int64_t count,
                 const Interrupt *interrupt);

/* Records that a member failed. Present and later waits of all members fail with the same status.
 * Later failures are ignored. */
void team_fail(Team *team, int member, const Status *status);

/* Declares that the member no longer uses the others' offers, and waits until no member uses its
 * own. A member must call this before its offer becomes invalid, even if team_synchronize
 * failed. */
void team_finish(Team *team, int member, const Interrupt *interrupt);

/* Every member must call this when its work has ended, with the status of that work. */
void team_leave(Team *team, int member, const Status *status);

#ifdef __cplusplus
}
#endif
#endif
