from lockstep.reference import lr_policies, strict

for name, policies in ("default", lr_policies), ("strict", strict.lr_policies):
    try:
        print(f"{name}: {policies.poly_decay(5, 1, decay_steps=10)}")
    except TypeError as error:
        print(f"{name}: {error}")
