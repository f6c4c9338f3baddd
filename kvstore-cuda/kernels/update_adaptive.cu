// Steps whose size each element finds for itself.
#include "update.h"

KV_UPDATE(Adam)
KV_UPDATE(AdaGrad)
KV_UPDATE(AdaDelta)
KV_UPDATE(RmsProp)
KV_UPDATE(RmsPropCentered)
KV_UPDATE(Ftrl)
KV_UPDATE(Adamax)
KV_UPDATE(Nadam)
KV_UPDATE(Ftml)
