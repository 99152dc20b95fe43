#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "preloaded.h"

#include <dlfcn.h>

#include "../c/offered_engine.h"

void preloaded_offer_engine(void)
{
    static const Engine engine = {sgemm_kernels_find_device, sgemm_kernels_multiply,
                                  sgemm_kernels_allocate, sgemm_kernels_free};
    OfferEngine *const offer = (OfferEngine *)dlsym(RTLD_DEFAULT, OFFER_ENGINE);
    if (offer) {
        offer(&engine);
    }
}
