// The step that has noise.
#include "update.h"

KV_UPDATE(Sgld)
