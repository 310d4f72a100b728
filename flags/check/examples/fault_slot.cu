// fault_slot: both synchronisation points share one slot, so a peer's start flag passes for its end flag.
#define END_SLOT 0
#include "mini.cuh"
