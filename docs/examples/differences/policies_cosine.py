from lockstep.reference import lr_policies, strict

for name, policies in ("default", lr_policies), ("strict", strict.lr_policies):
    rate = policies.cosine_decay(100, 0.5, decay_steps=100, min_lr=0.125)
    print(f"{name}: ends at {rate}")
    try:
        rate = policies.cosine_decay(50, 0.5, decay_steps=100, power=2.0)
        print(f"{name}: half way with power 2: {rate}")
    except ValueError as error:
        print(f"{name}: {error}")
