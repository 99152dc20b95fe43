/* The threads of one call, each of which has a GPU of its own multiply rows of the product: how far each
 * of them has come, which the others may wait for, and which failed first. */
#ifndef SGEMM_TEAM_H
#define SGEMM_TEAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "interrupt.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MOST_GPUS = 64 };

/* What a member counts, for the others to wait for. */
typedef enum { TEAM_BROUGHT, TEAM_TAKEN, TEAM_COUNTERS } TeamCounter;

typedef struct {
    int device;
    const void *offer; /* what it lets the others use, once it has met them */
    int64_t counts[TEAM_COUNTERS];
    bool finished; /* and uses nothing of the others any more */
} TeamMember;

typedef struct Team {
    int count;
    TeamMember members[MOST_GPUS];

    pthread_mutex_t mutex; /* for all that follows, and for the members */
    pthread_cond_t changed;
    bool apart; /* some member never comes to meet the others */
    int failed; /* the member that failed first, and how; -1: none */
    Status failure;
} Team;

/* A team of one member for each of `count` devices, at most MOST_GPUS. */
void team_begin(Team *team, const int *devices, int count);
void team_end(Team *team);

/* Nobody shall wait for the others: some have no thread. Said before their work is done by another. */
void team_stay_apart(Team *team);

/* Offers the others what they may use and waits until all have done so. *together, the same for every
 * member, is false where one never will. Fails with the first failure of any. */
Status team_meet(Team *team, int member, const void *offer, const Interrupt *interrupt,
                 bool *together);

/* Says how far a member has come. */
void team_tell(Team *team, int member, TeamCounter counter, int64_t count);

/* Waits until all others have come so far. Fails with the first failure of any, or as interrupted. */
Status team_wait(Team *team, int member, TeamCounter counter, int64_t count,
                 const Interrupt *interrupt);

/* A member has failed: who waits for it, or will, fails with the same. Later failures do not count. */
void team_fail(Team *team, int member, const Status *status);

/* The member uses nothing of the others any more; returns when none of them uses what it has offered.
 * Owed before that ends, whatever meeting them came to. */
void team_finish(Team *team, int member, const Interrupt *interrupt);

/* The member's work has ended, whichever way it went: owed by each. */
void team_leave(Team *team, int member, const Status *status);

#ifdef __cplusplus
}
#endif
#endif
