"""The environment variables by which the workers of a campaign are told who they are."""

FOLDER = "RELIQ_CAMPAIGN_FOLDER"  #: environment: where the histories are
PROCESS = "RELIQ_CAMPAIGN_PROCESS"  #: environment: the name of this process
WORK = "RELIQ_CAMPAIGN_WORK"  #: environment: seconds that a message takes
OWN_PID = "RELIQ_CAMPAIGN_PID"  #: environment: of the named process; one that it starts adds its own to the name
